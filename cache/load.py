"""Loading through the tiers: where one lacks or spoils a file, the next one is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from vcc.cache.blob import MAX_BLOB, Damaged, read_content, sought
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.damage import Watch
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, MissingArtifact, StorageError, VccError
from vcc.cache.folder import Content, Folder
from vcc.cache.gate import Gate
from vcc.cache.loaded import Loaded, Verified
from vcc.cache.manifest import BlobRef, Manifest, NewerFormat
from vcc.cache.refs import check_same
from vcc.cache.request import Entry
from vcc.cache.roots import hold
from vcc.cache.tiers import LOCAL, Tier, reading
from vcc.cache.trouble import Unsafe
from vcc.cache.view import read_into

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loading:
    """One artifact that is being loaded.

    Args:
        entry: which.
        tiers: where to look, in this order.
        gate: whose artifacts are used.
        watch: is told of what is wrong in one tier when another one has it.
        fast: whether XXH3-128 will do for what no other account could write in the local tier.
        verified: counts what was verified.
        held: the tier in which this process is known as a user of the artifact.
    """

    entry: Entry
    tiers: tuple[Tier, ...]
    gate: Gate
    watch: Watch
    fast: bool
    verified: Verified = field(default_factory=Verified)
    held: list[str] = field(default_factory=list)

    def loaded(self) -> Loaded:
        """The artifact, its manifest verified and admitted; raises as `Store.load`."""
        tier, manifest, trust = self._first(self._manifest)
        return Loaded(manifest, self.fetch, tier.name, trust, self.verified, self.view)

    def fetch(self, ref: BlobRef) -> bytes:
        """The verified bytes of a blob. Bytes are the same wherever their digest was compared."""

        def read(tier: Tier) -> bytes:
            self._hold(tier)
            return self._read(tier, ref.digest, ref.size, MAX_BLOB, self._fast(ref, tier)).data

        return self._first(read)

    def view(self, ref: BlobRef, into: memoryview) -> memoryview:
        """As `fetch`, read into memory of the blob's size."""

        def read(tier: Tier) -> memoryview:
            self._hold(tier)
            fast = self._fast(ref, tier)
            with self._opened(tier) as store:
                view = _sought(
                    tier, store, ref.digest, lambda: read_into(into, store, ref.digest, fast)
                )
            self.verified.add(ref.size)
            return view

        return self._first(read)

    def _fast(self, ref: BlobRef, tier: Tier) -> str:
        return ref.xxh3 if self.fast and tier.kind == LOCAL else ""

    def _hold(self, tier: Tier) -> None:
        """Who reads blobs uses the artifact; who looks at manifests looks through many."""
        if tier.writable and not self.held:
            self.held.append(tier.name)
            with self._opened(tier) as store:
                hold(store, self.entry.artifact)

    def _manifest(self, tier: Tier) -> tuple[Tier, Manifest, str]:
        """Digest first, then trust, and only then the content."""
        entry = self.entry
        found = self._read(tier, entry.id, None, MAX_BYTES)
        with self._opened(tier) as store:
            trust = self.gate.admit(store, tier, entry, found.data, found.owner)
        try:
            manifest = Manifest.decode(found.data)
        except NewerFormat:
            raise
        except IntegrityError as error:
            raise Damaged(error.what, error.why, error.hint, entry.id) from error
        check_same(entry, Entry.of(manifest, entry.id))
        return tier, manifest, trust

    def _read(
        self, tier: Tier, digest: Digest, size: int | None, limit: int, fast: str = ""
    ) -> Content:
        with self._opened(tier) as store:
            found = _sought(
                tier, store, digest, lambda: read_content(store, digest, size, limit, fast=fast)
            )
        self.verified.add(len(found.data))
        return found

    @contextmanager
    def _opened(self, tier: Tier) -> Iterator[Folder]:
        with reading(tier) as store:
            if store is None:
                raise MissingArtifact(f"the store at {tier.root} is gone")
            yield store

    def _first(self, attempt: Callable[[Tier], T]) -> T:
        """The answer of the first tier that has a good one, else the worst that was found."""
        failed: list[tuple[Tier, VccError]] = []
        for tier in self.tiers:
            try:
                answer = attempt(tier)
            except (MissingArtifact, IntegrityError, StorageError) as error:
                if tier.writable and isinstance(error, Unsafe):
                    raise
                failed.append((tier, error))
                continue
            for other, wrong in failed:
                self.watch.passed_over(other, wrong, self.entry)
            return answer
        raise _worst([wrong for _, wrong in failed])


def _sought(tier: Tier, store: Folder, digest: Digest, read: Callable[[], T]) -> T:
    """Read a blob; in a tier of ours one that a killed sweep had taken is given back first."""
    return sought(store, digest, read) if tier.writable else read()


def _worst(errors: list[VccError]) -> VccError:
    """What is wrong comes before what is only not there; the first tier comes first."""
    return next((e for e in errors if not isinstance(e, MissingArtifact)), errors[0])
