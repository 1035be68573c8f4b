"""Calm: a store in which all that were at work are done, so that what is missing is lost.

A publisher writes its ref and then what a collection took from it meanwhile; a collection takes
files and then puts back what a ref names. So what a ref names can be out of its place while one of
both is at work, which has a folder in `tmp/` all the while.

    tmp/<host.boot.process.random>/calm        empty; no collection takes content while it is there

1. put down that file: collections that begin from now on leave content alone
2. wait until all that are at work are done: those collections that did not see it are
3. wait once more: so are publishers from whom such a collection took something

No clock is part of that but the one that bounds the wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from vcc.cache.folder import Folder
from vcc.cache.process import TMP, Life, Process
from vcc.cache.publish import own_folder

CALM = "calm"
WAIT_S, POLL_S = 30.0, 0.02
ROUNDS = 2


@contextmanager
def calm(store: Folder, wait_s: float | None = None) -> Iterator[tuple[str, ...]]:
    """Wait until all that are at work are done, and let no collection take content meanwhile.

    Args:
        store: the open `v1` folder.
        wait_s: seconds to wait at most; None: WAIT_S.

    Yields:
        The folders below `tmp/` of those that are still at work; empty when it is calm.

    Raises:
        OSError, Unsafe: the store cannot be written.
    """
    end = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
    with own_folder(store) as own:
        own.write(CALM, b"")
        left: set[str] = set()
        for _ in range(ROUNDS):
            left = at_work(store)
            while left and time.monotonic() < end:
                time.sleep(POLL_S)
                left &= at_work(store)
        yield tuple(sorted(left))


def calm_wanted(store: Folder) -> bool:
    """Whether somebody waits for calm, or looks at the store in it."""
    return any(_waits(store, name) for name in _folders(store))


def at_work(store: Folder) -> set[str]:
    """The folders below `tmp/` of those that publish or collect."""
    return {name for name in _folders(store) if not _waits(store, name)}


def _folders(store: Folder) -> list[str]:
    """Those of processes that run, or of other machines."""
    with suppress(FileNotFoundError), store.below(TMP) as tmp:
        found = [(name, Process.parse(name)) for name in tmp.names()]
        return [name for name, one in found if one and not _ended(one)]
    return []


def _ended(one: Process) -> bool:
    """Whether a process is gone, or was one before this host was started again.

    Another machine of the same name would be taken for that: it loses a cache hit at worst.
    """
    own = Process.own()
    return one.life() is Life.GONE or (one.host == own.host and one.boot != own.boot)


def _waits(store: Folder, name: str) -> bool:
    with suppress(OSError), store.below(TMP) as tmp:
        os.stat(f"{name}/{CALM}", dir_fd=tmp.fd, follow_symlinks=False)
        return True
    return False
