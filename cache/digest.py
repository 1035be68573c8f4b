"""Digests: SHA-256 is the identity of every blob, manifest and key; XXH3-128 rides beside it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from vcc.cache.errors import UsageError

_HEX = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A SHA-256 digest as 64 lower-case hexadecimal digits.

    Raises:
        UsageError: the text is not a digest.
    """

    hex: str

    def __post_init__(self) -> None:
        if not isinstance(self.hex, str) or not _HEX.match(self.hex):
            raise UsageError(
                f"{str(self.hex)[:80]!r} is not a digest", "64 lower-case hex digits are expected"
            )

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> Digest:
        """The digest of `data`. Large inputs are hashed without the interpreter lock."""
        return cls(hashlib.sha256(data).hexdigest())

    def __str__(self) -> str:
        return self.hex

    @property
    def short(self) -> str:
        """The first 12 digits, for people."""
        return self.hex[:12]


def is_digest(text: str) -> bool:
    """Whether `text` is a well-formed digest."""
    return _HEX.match(text) is not None


def xxh3(data: bytes | bytearray | memoryview) -> str:
    """XXH3-128 of `data` as 32 hex digits: fast, not collision-proof, never an identity."""
    import xxhash  # only a publisher needs it: the load path does not pay for the import

    return xxhash.xxh3_128_hexdigest(data)
