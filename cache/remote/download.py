"""Downloads: a blob comes in order into a file of our own and is hashed as it comes.

A download that was cut off goes on where it ended: what is there is hashed again, then the rest is
asked for. A partial is copied, never written to, so no lock is needed.

    tmp/partial/<digest>.part          what a failed download left; old ones go with `vcc cache gc`
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from vcc.cache.blob import place
from vcc.cache.errors import RemoteError
from vcc.cache.folder import FILE_FLAGS, FILE_MODE, FOLDER_FLAGS, NEW_FLAGS, Folder, write_all
from vcc.cache.process import TMP
from vcc.cache.remote.base import Blob, Passing, Remote
from vcc.cache.remote.patience import Patience

PARTIAL = (TMP, "partial")
MAX_FOLDERS = 256
"""Folders below `tmp` that are searched for a partial."""
CHUNK = 1 << 20


class Stopped(Exception):
    """Another part of the task failed, so this one ends too."""


@dataclass(slots=True)
class Download:
    """A blob on its way.

    Args:
        remote: where it comes from.
        blob: which.
        store: the open `v1` folder.
        own: our folder below `tmp`; the file in it has the blob's digest as its name.
        patience: how long.
        stop: set when the task is given up.
    """

    remote: Remote
    blob: Blob
    store: Folder
    own: Folder
    patience: Patience
    stop: threading.Event
    received: int = field(default=0, init=False)
    """Bytes that the remote sent."""
    _done: int = field(default=0, init=False)
    _sum: Any = field(default_factory=sha256, init=False)

    def run(self) -> None:
        """Bring the whole blob, verified and synced.

        Raises:
            RemoteError: it could not be brought, or is not what its digest says.
            MissingArtifact: the remote does not have it.
            OSError: it could not be written.
            Stopped: as told.
        """
        resumed = False
        with _new_file(self.own, self.name) as fd:
            try:
                resumed = self._resume(fd)
                self._bring(fd)
                if resumed and self._wrong:
                    self._start_again(fd)
                    self._bring(fd)
            except (RemoteError, Stopped, KeyboardInterrupt):
                self._keep()
                raise
            os.fsync(fd)
        if self._wrong:
            raise RemoteError(
                f"blob {self.blob.digest.short} of {self.remote.url} is not what its digest says",
                f"{self.blob.size} bytes came, with digest {self._sum.hexdigest()[:12]}",
                "Push it anew from a store that has it: vcc push --verify-remote",
            )
        _forget(self.store, self.name)

    @property
    def name(self) -> str:
        """Of the file in our folder, and of a partial."""
        return f"{self.blob.digest}.part"

    @property
    def _wrong(self) -> bool:
        return bool(self._sum.hexdigest() != self.blob.digest.hex)

    def _bring(self, fd: int) -> None:
        def sink(part: bytes) -> None:
            if self.stop.is_set():
                raise Stopped
            self.patience.check(f"reading blob {self.blob.digest.short}")
            write_all(fd, part)
            self._sum.update(part)
            self._done += len(part)
            self.received += len(part)

        def attempt() -> None:
            if self._done < self.blob.size:
                path = "/".join(("v1", *place(self.blob.digest)))
                self.remote.get(path, sink, limit=self.blob.size, start=self._done)
            if self._done < self.blob.size:
                why = f"{self._done} bytes of {self.blob.size} came"
                raise Passing(f"reading blob {self.blob.digest.short}: it ended early", why)

        self.patience.ask(f"reading blob {self.blob.digest.short}", attempt)

    def _resume(self, fd: int) -> bool:
        """Copy the longest partial there is; whether there was one."""
        found = max(_partials(self.store, self.name), default=None)
        if found is None or found[0] > self.blob.size:
            return False
        with suppress(OSError), _opened(self.store, found[1], self.name) as partial:
            while part := os.read(partial, min(CHUNK, self.blob.size - self._done)):
                write_all(fd, part)
                self._sum.update(part)
                self._done += len(part)
        return self._done > 0

    def _start_again(self, fd: int) -> None:
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        self._done, self._sum = 0, sha256()
        _forget(self.store, self.name)

    def _keep(self) -> None:
        """Leave what came where the next attempt finds it; a full disk takes it away instead."""
        if self._done:
            with suppress(OSError), self.store.below(*PARTIAL, create=True) as kept:
                os.rename(self.name, self.name, src_dir_fd=self.own.fd, dst_dir_fd=kept.fd)


@contextmanager
def _new_file(own: Folder, name: str) -> Iterator[int]:
    fd = os.open(name, NEW_FLAGS, FILE_MODE, dir_fd=own.fd)
    try:
        os.fchmod(fd, FILE_MODE)
        yield fd
    finally:
        os.close(fd)


def _partials(store: Folder, name: str) -> Iterator[tuple[int, str]]:
    """Size and folder of each file below `tmp` that has this name."""
    try:
        with store.below(TMP) as tmp:
            for folder in tmp.names()[:MAX_FOLDERS]:
                with suppress(OSError), _opened(store, folder, name) as fd:
                    size = os.fstat(fd).st_size
                    if size:
                        yield size, folder
    except FileNotFoundError:
        return


@contextmanager
def _opened(store: Folder, folder: str, name: str) -> Iterator[int]:
    with store.below(TMP) as tmp:
        inner = os.open(folder, FOLDER_FLAGS, dir_fd=tmp.fd)
    try:
        fd = os.open(name, FILE_FLAGS, dir_fd=inner)
    finally:
        os.close(inner)
    try:
        yield fd
    finally:
        os.close(fd)


def _forget(store: Folder, name: str) -> None:
    with suppress(OSError), store.below(*PARTIAL) as kept:
        os.unlink(name, dir_fd=kept.fd)
