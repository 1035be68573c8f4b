"""KvMemory: how much memory the KV cache may take, as a user says it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vcc.cache.errors import ConfigError

DEFAULT_SHARE = 0.9

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([A-Za-z]{0,3})")
_HINT = "write a size such as 20GiB, or a share of the free memory such as 0.9"


@dataclass(frozen=True, slots=True)
class KvMemory:
    """Bytes, or a share of the memory that is free when the weights have their place.

    Attributes:
        share: above 0, at most 1; used when `bytes` is 0.
        bytes: most bytes; 0 when a share is meant.
    """

    share: float = DEFAULT_SHARE
    bytes: int = 0

    @classmethod
    def parse(cls, text: str) -> KvMemory:
        """Read `20GiB`, `512MB`, `1073741824` or `0.9`.

        Raises:
            ConfigError: none of these, or nothing at all.
        """
        found = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
        unit = "" if found is None else found[2].upper()
        if found is None or unit not in _UNITS:
            raise ConfigError(f'cannot read --kv-memory "{str(text)[:40]}"', "", _HINT)
        number = float(found[1])
        if not unit and 0.0 < number <= 1.0:
            return cls(share=number)
        if not unit and not number.is_integer():
            raise ConfigError(f'--kv-memory "{text[:40]}" is neither a share nor a size', "", _HINT)
        size = int(number * _UNITS[unit])
        if size < 1:
            raise ConfigError(f'--kv-memory "{text[:40]}" is no memory at all', "", _HINT)
        return cls(bytes=size)

    def of(self, free: int) -> int:
        """Bytes that the cache may take where so many are free."""
        return min(self.bytes, free) if self.bytes else int(free * self.share)

    def __str__(self) -> str:
        return str(self.bytes) if self.bytes else f"{self.share:g}"


DEFAULT_KV_MEMORY = KvMemory()
