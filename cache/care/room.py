"""Room: what of a store takes how many bytes, by kind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from vcc.cache.blob import CAS
from vcc.cache.care.clock import now_of
from vcc.cache.care.marks import Marks, blob_states
from vcc.cache.care.place import existing
from vcc.cache.folder import Folder
from vcc.cache.trouble import Unsafe, storage

DEEPEST = 8


def room(root: Path) -> Mapping[str, tuple[int, int]]:
    """Files and bytes of each kind; what has two names counts once.

    Raises:
        StorageError, Unsafe: the store cannot be read.
    """
    found: dict[str, tuple[int, int]] = {}
    with storage("measure the store at", str(root)), existing(root) as store:
        if store is None:
            return found
        marked = Marks(store, now_of(store)).marked(sure=False)
        for digest, state in blob_states(store).items():
            _add(found, "blobs in use" if digest in marked else "unreferenced blobs", state.st_size)
        for name in store.names():
            if name != CAS[0]:
                for state in _files(store, name):
                    # a second name: its first one was counted among the blobs
                    _add(found, name, state.st_size if state.st_nlink == 1 else 0)
    return found


def _add(found: dict[str, tuple[int, int]], kind: str, size: int) -> None:
    count, total = found.get(kind, (0, 0))
    found[kind] = (count + 1, total + size)


def _files(folder: Folder, name: str, depth: int = 0) -> Iterator[os.stat_result]:
    """The states of all files in a folder; what cannot be looked into is left out."""
    with suppress(OSError, Unsafe), folder.below(name) as inner, os.scandir(inner.fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth < DEEPEST:
                    yield from _files(inner, entry.name, depth + 1)
            else:
                yield entry.stat(follow_symlinks=False)
