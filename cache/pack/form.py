"""The form of a pack: what comes first in the file, and what it must keep to.

    pack   = magic length sum index refs signatures manifests blobs     ; and nothing after it
    magic  = "vccpack 1" LF
    length = bytes of index, u64 little-endian        ; at most 1 MiB
    sum    = SHA-256 of index, 32 bytes
    index  = canonical JSON of Index

The rest is the bytes of all files, one after another, in the order of the index.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from vcc.cache import canonical
from vcc.cache.blob import MAX_BLOB
from vcc.cache.canonical import MAX_BYTES, FormatError
from vcc.cache.digest import Digest, is_digest
from vcc.cache.manifest import FORMAT_VERSION, check_version
from vcc.cache.refs import MAX_REF
from vcc.cache.trust.publickey import KEY_HEX
from vcc.cache.trust.signature import MAX_SIGNATURES
from vcc.cache.trust.statement import MAX_STATEMENT

MAGIC = b"vccpack 1\n"
LENGTH_BYTES, SUM_BYTES = 8, 32
HEAD = len(MAGIC) + LENGTH_BYTES + SUM_BYTES
MAX_ARTIFACTS = 4096

Sized = tuple[str, int]
"""SHA-256 in hex and size in bytes."""


class PackError(FormatError):
    """A file that is no pack, or one that is cut off, damaged or made up."""

    id = "PACK"


class Index(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a pack holds; every list sorted, everything once.

    Args:
        refs: (base, artifact, SHA-256, size) of each ref.
        signatures: (artifact, key, SHA-256, size) of each signature.
        manifests: of each artifact.
        blobs: of each blob.
        format_version: of the store that it came from.
    """

    refs: tuple[tuple[str, str, str, int], ...]
    signatures: tuple[tuple[str, str, str, int], ...]
    manifests: tuple[Sized, ...]
    blobs: tuple[Sized, ...]
    format_version: str = FORMAT_VERSION

    @property
    def size(self) -> int:
        """Bytes of all files."""
        named = sum(size for *_, size in (*self.refs, *self.signatures))
        return named + sum(size for _, size in (*self.manifests, *self.blobs))


def encode_head(index: Index) -> bytes:
    """Everything up to the files.

    Raises:
        FormatError: there is more in it than a pack may hold.
    """
    check(index)
    text = canonical.encode(msgspec.to_builtins(index), "index of the pack")
    length = len(text).to_bytes(LENGTH_BYTES, "little")
    return MAGIC + length + bytes.fromhex(Digest.of(text).hex) + text


def length_of(head: bytes) -> int:
    """Bytes of the index.

    Args:
        head: the first `HEAD` bytes of the file.

    Raises:
        PackError: it is not a pack, or the index is over its cap.
    """
    if not head.startswith(MAGIC) or len(head) != HEAD:
        raise PackError("this is not a pack", f"it begins with {head[: len(MAGIC)]!r}")
    length = int.from_bytes(head[len(MAGIC) : len(MAGIC) + LENGTH_BYTES], "little")
    if length > MAX_BYTES:
        raise PackError("the pack is damaged", f"its index would have {length} bytes")
    return length


def decode_index(head: bytes, text: bytes) -> Index:
    """The index of a pack, from untrusted bytes.

    Raises:
        NewerFormat: made by a later vcc of another format.
        PackError: anything else that is wrong with it.
    """
    if bytes.fromhex(Digest.of(text).hex) != head[-SUM_BYTES:]:
        raise PackError("the pack is damaged", "the sum of its index does not match")
    fields = canonical.decode(text, "index of the pack")
    if not isinstance(fields, dict):
        raise PackError("the pack is not a pack", "its index is no object")
    check_version(fields.get("format_version"), "pack")
    try:
        index = msgspec.convert(fields, Index)
    except msgspec.ValidationError as error:
        raise PackError("the pack's index has a wrong field", str(error)) from error
    check(index)
    return index


def check(index: Index) -> None:
    """Refuse an index that breaks a cap or names something twice or out of order."""
    for name, cap in _CAPS.items():
        files = getattr(index, name)
        if list(files) != sorted(set(files)):
            raise PackError(f"the pack's {name} are not sorted")
        for *names, digest, size in files:
            if not is_digest(digest) or not 0 <= size <= cap:
                raise PackError(f"the pack's {name} have a bad entry", f"{digest[:12]!r}, {size}")
            _check_names(name, names)
    _check_artifacts(index)


_CAPS = {
    "refs": MAX_REF,
    "signatures": MAX_STATEMENT,
    "manifests": MAX_BYTES,
    "blobs": MAX_BLOB,
}


def _check_names(kind: str, names: list[str]) -> None:
    good = all(is_digest(name) for name in names[:1]) and (
        all(KEY_HEX.match(name) for name in names[1:])
        if kind == "signatures"
        else all(is_digest(name) for name in names[1:])
    )
    if not good:
        raise PackError(f"the pack's {kind} have a bad name")


def _check_artifacts(index: Index) -> None:
    artifacts = [artifact for _, artifact, _, _ in index.refs]
    if not artifacts or len(artifacts) > MAX_ARTIFACTS:
        raise PackError(f"the pack has {len(artifacts)} artifacts", f"1 to {MAX_ARTIFACTS}")
    if sorted(artifacts) != [digest for digest, _ in index.manifests]:
        raise PackError("the pack's refs and manifests are not of the same artifacts")
    for name in ("manifests", "blobs"):
        digests = [digest for digest, _ in getattr(index, name)]
        if len(set(digests)) != len(digests):
            raise PackError(f"the pack's {name} have a digest twice")
    signed = Counter(artifact for artifact, *_ in index.signatures)
    if not signed.keys() <= set(artifacts):
        raise PackError("the pack has a signature of an artifact that it lacks")
    pairs = [(artifact, key) for artifact, key, *_ in index.signatures]
    if len(set(pairs)) != len(pairs) or max(signed.values(), default=0) > MAX_SIGNATURES:
        raise PackError("the pack has too many signatures of an artifact")
