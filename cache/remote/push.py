"""Pushing an artifact: blobs, manifest, signatures, and the ref last, each only where it is absent.

A push that is cut off leaves blobs that no ref names; the next one finds and skips them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from vcc.cache.blob import place
from vcc.cache.digest import Digest
from vcc.cache.errors import MissingArtifact, RemoteError
from vcc.cache.loaded import Loaded
from vcc.cache.manifest import BlobRef
from vcc.cache.refs import MAX_REF, REFS
from vcc.cache.remote.base import Blob, Remote
from vcc.cache.remote.patience import Patience
from vcc.cache.remote.pull import Told, tell_nobody
from vcc.cache.request import Entry, encode_ref
from vcc.cache.store import Store
from vcc.cache.stored import manifest_text, signatures_of
from vcc.cache.trust.signature import SIGNATURES
from vcc.cache.trust.statement import MAX_STATEMENT

THREADS = 4


@dataclass(frozen=True, slots=True)
class Pushed:
    """A pushed artifact.

    Args:
        entry: which.
        sent: bytes that were sent.
        blobs: how many blobs were sent; 0 where all were there.
        repaired: how many of them replaced wrong bytes.
        new: whether the remote had no ref of it before.
    """

    entry: Entry
    sent: int
    blobs: int
    repaired: int
    new: bool


@dataclass(frozen=True, slots=True)
class _Sent:
    size: int = 0
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Push:
    """How artifacts are pushed.

    Args:
        remote: where to.
        patience: how long.
        verify: read back and hash what the remote has already, instead of comparing its size.
        told: hears of every blob.
    """

    remote: Remote
    patience: Patience
    verify: bool = False
    told: Told = tell_nobody

    def run(
        self, entry: Entry, loaded: Loaded, manifest: bytes, signatures: dict[str, bytes]
    ) -> Pushed:
        """Push one artifact.

        Args:
            entry: as its ref tells it.
            loaded: gives its verified blobs.
            manifest: its text.
            signatures: file name to bytes.

        Raises:
            RemoteError: it is not complete on the remote; no ref names it there.
            Damaged, MissingArtifact, StorageError: the local store does not have all of it.
        """
        refs = {ref.digest: ref for ref in loaded.manifest.blobs.values()}
        with ThreadPoolExecutor(THREADS, "vcc-push") as pool:
            try:
                sent = list(pool.map(lambda ref: self._blob(ref, loaded), refs.values()))
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        text = Blob(entry.id, len(manifest))
        sent.append(self._content(text, lambda: manifest, "manifest"))
        for name, data in sorted(signatures.items()):
            self._file(f"v1/{SIGNATURES}/{entry.artifact}/{name}", data, (), MAX_STATEMENT)
        keeps = (text, *(Blob(ref.digest, ref.size) for ref in refs.values()))
        path = f"v1/{REFS}/{entry.base.digest}/{entry.artifact}"
        new = self._file(path, encode_ref(entry), keeps, MAX_REF)
        return Pushed(
            entry,
            sum(one.size for one in sent),
            sum(one.size > 0 for one in sent[:-1]),
            sum(one.repaired for one in sent),
            new,
        )

    def missing(self, loaded: Loaded) -> tuple[Blob, ...]:
        """The blobs that `run` would send; raises RemoteError as it does."""
        refs = {ref.digest: ref for ref in loaded.manifest.blobs.values()}
        found = []
        for ref in refs.values():
            path, what = "/".join(("v1", *place(ref.digest))), f"looking for {ref.digest.short}"
            size = self.patience.ask(what, partial(self.remote.size, path))
            blob = Blob(ref.digest, ref.size)
            if not self._right(path, blob, size):
                found.append(blob)
        return tuple(found)

    def _blob(self, ref: BlobRef, loaded: Loaded) -> _Sent:
        self.told(ref.sha256, "running")
        sent = self._content(Blob(ref.digest, ref.size), lambda: loaded.fetch(ref), "blob")
        self.told(ref.sha256, "done" if sent.size else "reused")
        return sent

    def _content(self, blob: Blob, read: Callable[[], bytes], kind: str) -> _Sent:
        """Make sure that the remote has these bytes; those that are there and right stay."""
        path, what = "/".join(("v1", *place(blob.digest))), f"writing {kind} {blob.digest.short}"
        there = self.patience.ask(what, lambda: self.remote.size(path))
        wrong = there is not None and not self._right(path, blob, there)
        if there is not None and not wrong:
            return _Sent()
        data = read()
        # Somebody may have been faster; then the bytes there are theirs, and of the same digest.
        made = self.patience.ask(what, lambda: self.remote.put(path, data, replace=wrong))
        if not made and not self._right(path, blob, self.remote.size(path)):
            raise RemoteError(f"{what}: the remote has other bytes of that digest")
        return _Sent(len(data), wrong)

    def _right(self, path: str, blob: Blob, size: int | None) -> bool:
        if size != blob.size:
            return False
        return self.verify is False or self._digest(path, blob) == blob.digest

    def _digest(self, path: str, blob: Blob) -> Digest | None:
        """The digest of what the remote has; None where it is gone."""

        def attempt() -> Digest:
            found = sha256()
            self.remote.get(path, found.update, limit=blob.size)
            return Digest(found.hexdigest())

        try:
            return self.patience.ask(f"reading back blob {blob.digest.short}", attempt)
        except MissingArtifact:
            return None

    def _file(self, path: str, data: bytes, keeps: tuple[Blob, ...], limit: int) -> bool:
        """Store a small file; returns whether it was not there. Other content is replaced."""
        what = f"writing {path.split('/')[1]} {path.rpartition('/')[2][:12]}"
        put = self.remote.put
        if self.patience.ask(what, lambda: put(path, data, keeps=keeps)):
            return True
        if self._there(path, limit) != data:
            self.patience.ask(what, lambda: put(path, data, replace=True, keeps=keeps))
        return False

    def _there(self, path: str, limit: int) -> bytes:
        """What lies at the path of a small file; nothing where it is no such file."""
        parts: list[bytes] = []

        def attempt() -> None:
            parts.clear()
            self.remote.get(path, parts.append, limit=limit)

        try:
            self.patience.ask(f"reading back {path.rpartition('/')[2][:12]}", attempt)
        except MissingArtifact:
            return b""
        return b"".join(parts)


def push_stored(push: Push, store: Store, entry: Entry) -> Pushed:
    """Push an artifact of a store; raises as `Push.run`, and Untrusted as `Store.load`."""
    loaded = store.load(entry, full=True)
    text = manifest_text(loaded, entry)
    return push.run(entry, loaded, text, signatures_of(store, entry.artifact))
