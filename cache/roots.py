"""Roots: what garbage collection must leave alone, beside what a ref names.

    roots/live/<host.boot.process.artifact>    empty; a process that runs has loaded the artifact
    roots/pins/<artifact>                      empty; somebody wants to keep it

A live root goes when its process ends; `vcc cache gc` sweeps those of processes that were killed.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress

from vcc.cache.digest import is_digest
from vcc.cache.folder import FILE_MODE, Folder
from vcc.cache.process import Life, Process
from vcc.cache.trouble import Unsafe

LIVE, PINS = ("roots", "live"), ("roots", "pins")
# A process on another machine cannot be asked; it loses a cache hit at its next start at worst.
ELSEWHERE_S = 7 * 86400
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

_held: set[tuple[int, str]] = set()


def hold(store: Folder, artifact: str) -> None:
    """Tell garbage collection that this process uses an artifact, until it ends.

    Args:
        store: the open `v1` folder.
        artifact: the artifact's id, hex.

    Never raises: a store that cannot be written is not collected from here either.
    """
    path = f"{store.path}/{'/'.join(LIVE)}"
    name = f"{Process.own()}.{artifact}"
    mark = (os.getpid(), f"{path}/{name}")
    if mark in _held and os.path.exists(mark[1]):
        return
    with suppress(OSError, Unsafe), store.below(*LIVE, create=True) as live:
        os.close(os.open(name, _CREATE, FILE_MODE, dir_fd=live.fd))
        _held.add(mark)


def release() -> None:
    """Take back all that this process holds; done by itself when it ends."""
    for pid, path in tuple(_held):
        if pid == os.getpid():  # a forked child has the parent's list
            with suppress(OSError):
                os.unlink(path)
    _held.clear()


atexit.register(release)


def live(store: Folder, now: float) -> dict[str, tuple[Process, ...]]:
    """Artifacts that processes hold, with these processes; those that are gone do not count.

    Args:
        store: the open `v1` folder.
        now: seconds since 1970 by the clock that stamps the store's files.

    Raises:
        OSError: the roots cannot be listed.
    """
    found: dict[str, tuple[Process, ...]] = {}
    for name, process in live_names(store):
        if is_live(store, name, process, now):
            artifact = name.rpartition(".")[2]
            found[artifact] = (*found.get(artifact, ()), process)
    return found


def live_names(store: Folder) -> tuple[tuple[str, Process], ...]:
    """All live roots as (file name, process), of processes that are gone too; raises as `live`."""
    names = _names(store, LIVE)
    parsed = ((name, Process.parse(name)) for name in names)
    return tuple(
        (name, process)
        for name, process in parsed
        if process is not None and is_digest(name.rpartition(".")[2])
    )


def is_live(store: Folder, name: str, process: Process, now: float) -> bool:
    """Whether a live root counts; one of another machine does for a week."""
    life = process.life()
    if life is not Life.ELSEWHERE:
        return life is Life.RUNS
    with suppress(FileNotFoundError), store.below(*LIVE) as folder:
        found = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
        return now - found.st_mtime < ELSEWHERE_S
    return False


def pin(store: Folder, artifact: str) -> bool:
    """Keep an artifact until it is unpinned; returns whether it was not pinned before.

    Raises:
        OSError, Unsafe: the pin could not be made durable.
    """
    with store.below(*PINS, create=True) as pins:
        try:
            pins.write(artifact, b"")
        except FileExistsError:
            return False
        pins.sync()
        return True


def unpin(store: Folder, artifact: str) -> bool:
    """Take a pin away; returns whether there was one. Raises as `pin`."""
    try:
        with store.below(*PINS) as pins:
            os.unlink(artifact, dir_fd=pins.fd)
            pins.sync()
    except FileNotFoundError:
        return False
    return True


def pinned(store: Folder) -> frozenset[str]:
    """The ids of all pinned artifacts; raises as `live`."""
    return frozenset(name for name in _names(store, PINS) if is_digest(name))


def _names(store: Folder, place: tuple[str, ...]) -> list[str]:
    try:
        with store.below(*place) as folder:
            return folder.names()
    except FileNotFoundError:
        return []
