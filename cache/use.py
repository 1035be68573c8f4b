"""How often and when artifacts were used: heuristic data that may be lost or wrong at any time.

    notes/use/<artifact>     one byte a use; its time of change is the last use
    notes/missed/<base>      one byte a look-up that nothing answered

Appending a byte is one system call, needs no lock, and two processes never lose each other's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.digest import is_digest
from vcc.cache.folder import FILE_MODE, Folder
from vcc.cache.root import opened
from vcc.cache.trouble import Unsafe

USE, MISSED = ("notes", "use"), ("notes", "missed")
MOST = 1 << 20
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Use:
    """Uses of an artifact: how many, and when the last was (seconds since 1970)."""

    count: int
    last: float


def note_use(store: Folder, artifact: str) -> None:
    """Count a use of an artifact; never raises."""
    _count(store, USE, artifact)


def note_miss(store: Folder, base: str) -> None:
    """Count a look-up that nothing answered, by the digest of its base; never raises."""
    _count(store, MISSED, base)


def note_boot(root: Path, artifact: str) -> None:
    """Count a boot from an artifact in the store at `root`; never raises."""
    with suppress(OSError, Unsafe), opened(root, create=False) as store:
        note_use(store, artifact)


def note_missed(root: Path, base: str) -> None:
    """Count a look-up in the store at `root` that nothing answered; never raises."""
    with suppress(OSError, Unsafe), opened(root, create=False) as store:
        note_miss(store, base)


def uses(store: Folder) -> Mapping[str, Use]:
    """What is noted of artifacts, by id; nothing where notes cannot be read."""
    return _read(store, USE)


def misses(store: Folder) -> Mapping[str, Use]:
    """What is noted of look-ups that missed, by base."""
    return _read(store, MISSED)


def _count(store: Folder, place: tuple[str, ...], name: str) -> None:
    with suppress(OSError, Unsafe), store.below(*place, create=True) as folder:
        fd = os.open(name, _APPEND, FILE_MODE, dir_fd=folder.fd)
        try:
            if os.fstat(fd).st_size < MOST:
                os.write(fd, b".")
            else:
                os.utime(fd)
        finally:
            os.close(fd)


def _read(store: Folder, place: tuple[str, ...]) -> Mapping[str, Use]:
    found: dict[str, Use] = {}
    with suppress(OSError, Unsafe), store.below(*place) as folder, os.scandir(folder.fd) as items:
        for item in items:
            if is_digest(item.name):
                with suppress(OSError):
                    state = item.stat(follow_symlinks=False)
                    found[item.name] = Use(min(state.st_size, MOST), max(0.0, state.st_mtime))
    return found
