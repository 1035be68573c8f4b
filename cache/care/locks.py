"""Locks of builds: who holds them, and how those that nobody holds go.

A lock only saves work (`single_flight.py`), so removing one can never spoil the store: at worst two
processes build the same artifact.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from vcc.cache.digest import Digest, is_digest
from vcc.cache.folder import Folder
from vcc.cache.process import Life, Process
from vcc.cache.single_flight import LOCKS, Holder, holder_of

LOCK, HOLDER = ".lock", ".holder"
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What a file system without locks answers.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})


class State(Enum):
    """Whether somebody holds a lock; UNKNOWN where locks do not work and nobody can be asked."""

    HELD = "held"
    FREE = "free"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock of a store.

    Args:
        digest: what is built under it, hex.
        state: whether it is held.
        holder: who said last that they hold it, and did not take that back; None when nobody did.
    """

    digest: str
    state: State
    holder: Holder | None

    @property
    def over(self) -> bool:
        """Whether what was built under it came to an end by itself, so that only a file is left."""
        process = Process.parse(f"{self.holder.process}.") if self.holder else None
        announced = self.holder is not None and not (process and process.life() is Life.RUNS)
        return self.state is State.FREE and not announced


def read_locks(store: Folder) -> tuple[Lock, ...]:
    """All locks of the store.

    Raises:
        OSError, Unsafe: they cannot be listed.
    """
    try:
        with store.below(LOCKS) as folder:
            stems = {name.partition(".")[0] for name in folder.names()}
            return tuple(_lock(folder, stem) for stem in sorted(stems) if is_digest(stem))
    except FileNotFoundError:
        return ()


def is_free(store: Folder, digest: str) -> bool:
    """Whether nobody holds a lock, as far as that can be known."""
    with suppress(FileNotFoundError), store.below(LOCKS) as folder:
        return _lock(folder, digest).state is State.FREE
    return True


def remove_lock(store: Folder, lock: Lock) -> None:
    """Remove the files of a lock.

    Raises:
        OSError, Unsafe: they cannot be removed; those that are gone already are no error.
    """
    with store.below(LOCKS) as folder:
        for suffix in (LOCK, HOLDER):
            with suppress(FileNotFoundError):
                os.unlink(lock.digest + suffix, dir_fd=folder.fd)


def _lock(folder: Folder, digest: str) -> Lock:
    holder = holder_of(folder, Digest(digest))
    return Lock(digest, _state(folder, digest + LOCK, holder), holder)


def _state(folder: Folder, name: str, holder: Holder | None) -> State:
    try:
        fd = os.open(name, _FLAGS, dir_fd=folder.fd)
    except FileNotFoundError:
        return State.FREE
    except OSError:
        return _announced(holder)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return _announced(holder) if error.errno in _NO_LOCKS else State.HELD
    finally:
        os.close(fd)  # gives the lock back too
    return State.FREE


def _announced(holder: Holder | None) -> State:
    """What the holder's own words say where the lock itself cannot be asked."""
    process = Process.parse(f"{holder.process}.") if holder else None
    if process is None:
        return State.UNKNOWN
    known = {Life.RUNS: State.HELD, Life.GONE: State.FREE, Life.ELSEWHERE: State.UNKNOWN}
    return known[process.life()]
