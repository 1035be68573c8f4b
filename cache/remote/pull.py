"""Pulling an artifact: everything is verified in a folder of our own before a name leads to it.

manifest -> signatures, mark -> the gate -> blobs -> manifest, ref last, as every publisher does.
A pull that is killed leaves blobs without a ref at worst, and what it has is not asked for again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from vcc.cache.blob import CAS, has_blob, place, read_blob, sought
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, MissingArtifact, RemoteError
from vcc.cache.folder import Folder
from vcc.cache.gate import Gate
from vcc.cache.manifest import Manifest, NewerFormat
from vcc.cache.publish import (
    name_file,
    own_folder,
    publish_content,
    publish_ref,
    put_back,
    sync_down,
)
from vcc.cache.pulled import Mark, remove_mark, write_mark
from vcc.cache.refs import check_same, has_ref
from vcc.cache.remote.base import Blob, Remote
from vcc.cache.remote.download import Download, Stopped
from vcc.cache.remote.patience import Patience
from vcc.cache.remote.signatures import bring_signatures
from vcc.cache.request import Entry
from vcc.cache.root import opened
from vcc.cache.tiers import Tier, tiers_of
from vcc.cache.trouble import storage

THREADS = 4

Told = Callable[[str, str], None]
"""Is told that an item, a digest, is "running" or "done" or was "reused"."""


def tell_nobody(item: str, state: str) -> None:
    """Who listens by default."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """A pulled artifact.

    Args:
        entry: which.
        received: bytes that came from the remote.
        blobs: how many blobs came; 0 where all were there.
        trust: why the gate admits it.
        new: whether the store had no ref of it before.
    """

    entry: Entry
    received: int
    blobs: int
    trust: str
    new: bool


def pull(
    root: Path,
    remote: Remote,
    entry: Entry,
    gate: Gate,
    patience: Patience,
    *,
    by_hand: bool,
    told: Told = tell_nobody,
) -> Pulled:
    """Bring one artifact into the store at `root`.

    Args:
        entry: as the remote's ref tells it.
        gate: asked before any blob is.
        by_hand: whether a person asked for this artifact; see `pulled.Mark`.
        told: hears of every blob.

    Raises:
        RemoteError: the remote failed, or what it has is not what it says; nothing is visible.
        MissingArtifact: the remote does not have all of it any more.
        Untrusted: the gate does not admit it.
        StorageError, Unsafe: the store cannot be written; nothing is visible.
    """
    trouble = storage("write to the store at", str(root))
    with trouble, opened(root, create=True) as store, own_folder(store) as own:
        task = _Pull(tiers_of(root, ())[0], store, own, remote, entry, patience, told)
        return task.run(gate, Mark(url=remote.url, when=_now(), by_hand=by_hand))


@dataclass(frozen=True, slots=True)
class _Pull:
    tier: Tier
    store: Folder
    own: Folder
    remote: Remote
    entry: Entry
    patience: Patience
    told: Told
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, gate: Gate, mark: Mark) -> Pulled:
        new = not has_ref(self.store, self.entry)
        text = self._local(Blob(self.entry.id, -1)) or self._small(self.entry.id)
        manifest = self._checked(text)
        bring_signatures(self.store, self.own, self.remote, self.entry.id, self.patience)
        if new:
            write_mark(self.store, self.own, self.entry.artifact, mark)
        trust = self._admitted(gate, text, new)
        received, count = self._blobs(manifest)
        publish_content(self.store, self.own, {self.entry.id: text})
        publish_ref(self.store, self.own, self.entry)
        put_back(self.store, self.own, {self.entry.id: text})
        if not all(has_blob(self.store, ref.digest) for ref in manifest.blobs.values()):
            self.own.clear()  # a collection took some before it could see the ref: bring them again
            self._blobs(manifest)
        return Pulled(self.entry, received, count, trust, new)

    def _small(self, digest: Digest) -> bytes:
        """A manifest, in memory."""
        path, parts = "/".join(("v1", *place(digest))), list[bytes]()

        def attempt() -> None:
            parts.clear()
            self.remote.get(path, parts.append, limit=MAX_BYTES)

        self.patience.ask(f"reading manifest {digest.short}", attempt)
        data = b"".join(parts)
        if Digest.of(data) != digest:
            raise RemoteError(
                f"manifest {digest.short} of {self.remote.url} is not what its digest says",
                f"{len(data)} bytes came",
                "Push it anew from a store that has it: vcc push --verify-remote",
            )
        return data

    def _checked(self, text: bytes) -> Manifest:
        try:
            manifest = Manifest.decode(text)
            check_same(self.entry, Entry.of(manifest, self.entry.id))
        except NewerFormat:
            raise
        except IntegrityError as error:
            what = f"artifact {self.entry.id.short} of {self.remote.url} is not what its ref says"
            raise RemoteError(what, f"{error.id}: {error}") from error
        return manifest

    def _admitted(self, gate: Gate, text: bytes, new: bool) -> str:
        try:
            return gate.admit(self.store, self.tier, self.entry, text, os.geteuid())
        except IntegrityError:
            if new:
                remove_mark(self.store, self.entry.artifact)
            raise

    def _blobs(self, manifest: Manifest) -> tuple[int, int]:
        """Bring the blobs that are not here; bytes and number of those that came."""
        sizes = {ref.digest: ref.size for ref in manifest.blobs.values()}
        every = [Blob(digest, size) for digest, size in sorted(sizes.items())]
        with ThreadPoolExecutor(THREADS, "vcc-pull") as pool:
            work = [pool.submit(self._blob, blob) for blob in every]
            try:
                counts = _results(work)
            except BaseException:
                self.stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        sync_down(self.store, CAS)
        came = [count for count in counts if count is not None]
        return sum(came), len(came)

    def _blob(self, blob: Blob) -> int | None:
        """Bring one blob and name it; bytes that came, None where it was here."""
        if self._local(blob) is not None:
            self.told(blob.digest.hex, "reused")
            return None
        self.told(blob.digest.hex, "running")
        task = Download(self.remote, blob, self.store, self.own, self.patience, self.stop)
        task.run()
        *folders, name = place(blob.digest)
        with self.store.below(*folders, create=True) as shelf:
            check = partial(read_blob, self.store, blob.digest, blob.size)
            name_file(self.store, self.own, task.name, shelf, name, check)
            shelf.sync()
        self.told(blob.digest.hex, "done")
        return task.received

    def _local(self, blob: Blob) -> bytes | None:
        """The bytes of a blob or manifest that is here and right."""
        try:
            size = None if blob.size < 0 else blob.size
            return sought(self.store, blob.digest, lambda: read_blob(self.store, blob.digest, size))
        except (MissingArtifact, IntegrityError):
            return None


def _results(work: Sequence[Future[int | None]]) -> list[int | None]:
    """The results of all, or the first failure that is not just the echo of another."""
    done, _ = wait(work, return_when=FIRST_EXCEPTION)
    failed = [error for one in done if (error := one.exception()) is not None]
    if failed:
        raise next((error for error in failed if not isinstance(error, Stopped)), failed[0])
    return [one.result() for one in work]


def _now() -> int:
    return max(0, int(time.time()))
