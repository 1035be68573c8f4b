"""Reading a pack: in one pass, from anywhere, and nothing is believed before it is verified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError
from vcc.cache.manifest import Manifest, NewerFormat
from vcc.cache.pack.form import HEAD, Index, PackError, decode_index, length_of
from vcc.cache.refs import check_same
from vcc.cache.remote.base import Blob
from vcc.cache.request import Entry, decode_ref

CHUNK = 1 << 20
MAX_SMALL = 256 << 20
"""Bytes of all refs, signatures and manifests, which are held in memory."""


class Stream(Protocol):
    """Where a pack is read from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; nothing at the end."""


@dataclass(frozen=True, slots=True)
class Packed:
    """One artifact of a pack.

    Args:
        entry: as its ref tells it.
        text: its manifest.
        blobs: what it consists of.
        signatures: by key.
    """

    entry: Entry
    text: bytes
    blobs: frozenset[Blob]
    signatures: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class PackReader:
    """A pack whose small files have been read and verified; its blobs come next.

    Args:
        stream: stands at the first blob.
        index: what it holds.
        artifacts: all of them; their blobs are exactly those of the index.
    """

    stream: Stream
    index: Index
    artifacts: tuple[Packed, ...]

    @classmethod
    def open(cls, stream: Stream) -> PackReader:
        """Read everything up to the blobs.

        Raises:
            PackError, IntegrityError: it is not a pack, or one that is damaged.
            NewerFormat: a later vcc made it.
        """
        head = exactly(stream, HEAD)
        index = decode_index(head, exactly(stream, length_of(head)))
        small = index.size - sum(size for _, size in index.blobs)
        if small > MAX_SMALL:
            raise PackError("the pack is damaged", f"{small} bytes of refs and manifests")
        refs = {one[:2]: _file(stream, *one[2:]) for one in index.refs}
        signatures = {one[:2]: _file(stream, *one[2:]) for one in index.signatures}
        texts = {name: _file(stream, name, size) for name, size in index.manifests}
        artifacts = tuple(
            _artifact(decode_ref(data, base, artifact), texts[artifact], signatures)
            for (base, artifact), data in refs.items()
        )
        reader = cls(stream, index, artifacts)
        reader._check_blobs()
        return reader

    def blobs(self) -> Iterator[tuple[Blob, Iterator[bytes]]]:
        """Each blob with its bytes, in order; read all of the bytes before the next blob.

        Raises:
            PackError: the bytes are not those of the digest; raised when the last ones are read.
        """
        for name, size in self.index.blobs:
            blob = Blob(Digest(name), size)
            yield blob, self._bytes(blob)
        if self.stream.read(1):
            raise PackError("the pack is damaged", "there is more in the file than its index says")

    def _bytes(self, blob: Blob) -> Iterator[bytes]:
        found, left = sha256(), blob.size
        while left:
            part = self.stream.read(min(CHUNK, left))
            if not part:
                raise _cut_off()
            found.update(part)
            left -= len(part)
            yield part
        if found.hexdigest() != blob.digest.hex:
            raise PackError("the pack is damaged", f"blob {blob.digest.short} does not match")

    def _check_blobs(self) -> None:
        """Refuse a pack that lacks a blob, has one too many, or tells another size."""
        needed = {blob for artifact in self.artifacts for blob in artifact.blobs}
        if needed != {Blob(Digest(name), size) for name, size in self.index.blobs}:
            raise PackError("the pack's blobs are not those of its artifacts")


def exactly(stream: Stream, size: int) -> bytes:
    """The next `size` bytes.

    Raises:
        PackError: the stream ends before.
    """
    parts: list[bytes] = []
    while size:
        part = stream.read(min(CHUNK, size))
        if not part:
            raise _cut_off()
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _file(stream: Stream, digest: str, size: int) -> bytes:
    data = exactly(stream, size)
    if Digest.of(data).hex != digest:
        raise PackError("the pack is damaged", f"file {digest[:12]} does not match")
    return data


def _artifact(entry: Entry, text: bytes, signatures: dict[tuple[str, str], bytes]) -> Packed:
    try:
        manifest = Manifest.decode(text)
        check_same(entry, Entry.of(manifest, entry.id))
    except NewerFormat:
        raise
    except IntegrityError as error:
        raise PackError(f"artifact {entry.id.short} of the pack is bad", str(error)) from error
    blobs = frozenset(Blob(ref.digest, ref.size) for ref in manifest.blobs.values())
    mine = {key: data for (name, key), data in signatures.items() if name == entry.artifact}
    return Packed(entry, text, blobs, mine)


def _cut_off() -> PackError:
    return PackError("the pack is cut off", "the file ends before its last byte")
