"""A loaded artifact: its manifest, and its blobs as verified bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from vcc.cache.blob import Damaged, read_blobs
from vcc.cache.digest import Digest
from vcc.cache.errors import MissingArtifact
from vcc.cache.manifest import BlobRef, Manifest


class Verified:
    """How many bytes were verified, by the digest that was compared. Threads add to it."""

    def __init__(self) -> None:
        self._sizes: list[int] = []  # appending is atomic, adding to a number is not

    def add(self, size: int) -> None:
        """Count the bytes of one file."""
        self._sizes.append(size)

    @property
    def bytes(self) -> int:
        """All so far; a blob that was read twice was verified twice."""
        return sum(self._sizes)


@dataclass(frozen=True, slots=True)
class Loaded:
    """An artifact whose manifest was verified; each blob is verified when it is read.

    Args:
        manifest: what it is.
        fetch: verified bytes of a blob.
        tier: name of the tier that the manifest came from; "memory" for a fresh build.
        trust: why it was admitted, one line.
        verified: the bytes that were verified so far, the manifest among them.
        show: as `fetch`, into memory of the blob's size.
    """

    manifest: Manifest
    fetch: Callable[[BlobRef], bytes]
    tier: str = "memory"
    trust: str = "built by this process"
    verified: Verified = field(default_factory=Verified, compare=False)
    show: Callable[[BlobRef, memoryview], memoryview] | None = None

    @classmethod
    def of(cls, manifest: Manifest, blobs: Mapping[str, bytes]) -> Loaded:
        """An artifact in memory: a fresh build is usable where the store cannot be written."""
        full = manifest.with_blobs(blobs)
        by_digest = {ref.digest: blobs[name] for name, ref in full.blobs.items()}
        return cls(full, lambda ref: _checked(by_digest[ref.digest], ref))

    def ref(self, name: str) -> BlobRef:
        """The reference to a blob.

        Raises:
            MissingArtifact: the manifest has no blob of this name.
        """
        if name not in self.manifest.blobs:
            have = ", ".join(sorted(self.manifest.blobs)[:8])
            raise MissingArtifact(f"the artifact has no blob {name!r}", f"it has {have or 'none'}")
        return self.manifest.blobs[name]

    def read(self, name: str) -> bytes:
        """The verified bytes of a blob.

        Raises:
            MissingArtifact: no such blob in the manifest or in the store.
            Damaged: the stored bytes are wrong; give it to `Store.quarantine`.
            StorageError: the system refuses to read it.
        """
        return self.fetch(self.ref(name))

    def read_all(self, names: Iterable[str] | None = None) -> dict[str, bytes]:
        """The verified bytes of several blobs (all by default), many read and hashed in threads."""
        have = self.manifest.blobs
        wanted = tuple(have if names is None else names)
        return read_blobs(self.read, wanted, sum(have[n].size for n in wanted if n in have))

    def view_all(self, names: Iterable[str] | None = None) -> dict[str, memoryview]:
        """As `read_all`, views of the bytes: sooner for many bytes, and nobody can write them."""
        wanted = tuple(dict.fromkeys(self.manifest.blobs if names is None else names))
        refs = {name: self.ref(name) for name in wanted}
        show = self.show
        if show is None:
            return {name: memoryview(self.fetch(ref)) for name, ref in refs.items()}
        from vcc.cache.view import room  # a look-up does not pay for the import

        ends = dict(zip(refs, accumulate(ref.size for ref in refs.values()), strict=True))
        memory = room(sum(ref.size for ref in refs.values()))

        def read(name: str) -> memoryview:
            ref = refs[name]
            return show(ref, memory[ends[name] - ref.size : ends[name]])

        return read_blobs(read, wanted, len(memory))

    def expose(self, names: Sequence[str]) -> AbstractContextManager[dict[str, Path]]:
        """Paths under which libraries can be opened while the context lasts.

        Args:
            names: blobs such as `piece/3.so` and `piece/3.json`; names that share the stem share
                a path stem too, as AOTInductor expects.

        Returns:
            A context with blob name to path. The bytes are sealed: nobody can change them.

        Raises:
            as `read`, and ExecForbidden where this system refuses executable memory files.
        """
        from vcc.cache.expose import exposed  # a look-up does not pay for the import

        digests = {name: self.ref(name).digest for name in names}
        return exposed(digests, self.view_all(names))


def _checked(data: bytes, ref: BlobRef) -> bytes:
    if Digest.of(data) != ref.digest:
        raise Damaged("a blob in memory was changed", ref.sha256, "", ref.digest)
    return data
