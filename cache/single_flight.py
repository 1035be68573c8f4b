"""Single flight: one process builds an artifact, the others wait for it, within bounds.

A lock only saves work: publishing is right without it. Where locks do not work (read-only store,
a file system without them) the caller goes on at once; where one excludes nobody (it happens on
parallel file systems) two processes build the same thing and both publish fine.

    locks/<digest>.lock       locked while somebody builds
    locks/<digest>.holder     canonical JSON of Holder, gone when the build is over: for messages
                              only, may be stale or lost
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vcc.cache import canonical
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, LockTimeout
from vcc.cache.folder import FILE_MODE, Folder, WrongSize
from vcc.cache.process import Process
from vcc.cache.root import opened
from vcc.cache.trouble import Unsafe

LOCKS = "locks"
MAX_HOLDER = 4096
POLL_S = 0.1
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_SHARED_MODE = 0o660
_BUSY = frozenset({errno.EWOULDBLOCK, errno.EACCES, errno.EINTR})
_log = logging.getLogger(__name__)


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock: host name, process id, since when (seconds since 1970), doing what.

    `process` names the process exactly, see `process.py`; empty before format 1.1.
    """

    host: str
    pid: int
    since: int
    what: str
    process: str = ""

    def __str__(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, since {since}, {self.what}"


@dataclass(frozen=True, slots=True)
class Flight:
    """How the turn was got.

    Args:
        locked: whether a lock is held; False where locks do not work.
        waited: whether another process held it before: look the artifact up again.
        reason: why there is no lock; empty when there is one.
    """

    locked: bool
    waited: bool
    reason: str = ""


@contextmanager
def single_flight(
    root: Path,
    digest: Digest,
    what: str,
    *,
    wait_s: float = 1800.0,
    waiting: Callable[[Holder | None, float], None] = lambda holder, waited_s: None,
) -> Iterator[Flight]:
    """Hold the turn to build what `digest` names.

    Args:
        root: the root of the store.
        digest: of the request or key that is built.
        what: said to those who wait, for example "compiling demo".
        wait_s: seconds to wait for another holder at most.
        waiting: called about ten times a second while waiting, with the holder (None when
            unknown) and the seconds waited so far.

    Raises:
        LockTimeout: the holder took longer. Not a miss: it names the holder, and the caller may
            build on its own.
    """
    lock, flight = _turn(root, digest, what, wait_s, waiting)
    try:
        yield flight
    finally:
        if lock is not None:
            _withdraw(root, digest)  # afterwards it would be the next holder's
            lock.release()


def _turn(
    root: Path,
    digest: Digest,
    what: str,
    wait_s: float,
    waiting: Callable[[Holder | None, float], None],
) -> tuple[_Lock | None, Flight]:
    """Take the lock, or say why there is none."""
    try:
        with opened(root, create=True) as store, store.below(LOCKS, create=True) as locks:
            lock = _Lock(locks, f"{digest}.lock")
            waited = _acquire(lock, locks, digest, wait_s, waiting)
            _announce(locks, digest, what)
    except LockTimeout:
        raise  # it is an OSError too, but the lock works
    except (OSError, Unsafe) as error:
        _log.info("no lock for %s at %s: %s", digest.short, root, error)
        return None, Flight(False, False, str(error) or type(error).__name__)
    return lock, Flight(True, waited)


class _Lock:
    """An advisory lock file; each instance has its own descriptor, so threads exclude too.

    Own lines instead of a library, because the answers of `flock` must be told apart: "somebody
    has it" is waited for, "there are no locks here" never is.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder, self._name = folder, name
        self._fd = -1

    def try_acquire(self) -> bool:
        """Whether the lock is ours now. Raises OSError where locks do not work."""
        fd = os.open(self._name, _LOCK_FLAGS, FILE_MODE, dir_fd=self._folder.fd)
        try:
            if self._folder.shared:  # an empty file: whoever may build here may lock it
                with suppress(OSError):
                    os.fchmod(fd, _SHARED_MODE)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_ours(fd):
                self._fd, fd = fd, -1
                return True
        except OSError as error:
            if error.errno not in _BUSY:
                raise
        finally:
            if fd >= 0:
                os.close(fd)
        return False

    def _is_ours(self, fd: int) -> bool:
        """Whether the name still leads to the locked file: a clean-up may have removed it."""
        try:
            named = os.stat(self._name, dir_fd=self._folder.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(fd))

    def release(self) -> None:
        """Give the lock back; the system does it for a process that ends."""
        with suppress(OSError):
            os.close(self._fd)


def _acquire(
    lock: _Lock,
    locks: Folder,
    digest: Digest,
    wait_s: float,
    waiting: Callable[[Holder | None, float], None],
) -> bool:
    """Wait for the lock; returns whether it was held by somebody else before."""
    start = time.monotonic()
    waited = False
    while not lock.try_acquire():
        waited = True
        passed = time.monotonic() - start
        holder = holder_of(locks, digest)
        if passed >= wait_s:
            raise LockTimeout(
                f"another process still builds this artifact after {wait_s:.0f} s",
                str(holder or "its holder is unknown"),
                "Wait for it, or end it and try again",
            )
        waiting(holder, passed)
        time.sleep(min(POLL_S, max(0.0, wait_s - passed)))
    return waited


def holder_of(locks: Folder, digest: Digest) -> Holder | None:
    """Who announced itself as the holder last; None when that cannot be told."""
    try:
        data = locks.read(f"{digest}.holder", limit=MAX_HOLDER)
        return msgspec.convert(canonical.decode(data, "holder"), Holder)
    except (OSError, IntegrityError, WrongSize, msgspec.ValidationError):
        return None


def _announce(locks: Folder, digest: Digest, what: str) -> None:
    own = Process.own()
    holder = Holder(
        host=os.uname().nodename, pid=own.pid, since=int(time.time()), what=what, process=str(own)
    )
    temp = f"{digest}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        locks.write(temp, canonical.encode(msgspec.to_builtins(holder), "holder"))
        os.rename(temp, f"{digest}.holder", src_dir_fd=locks.fd, dst_dir_fd=locks.fd)
    except (OSError, IntegrityError) as error:
        _log.info("the holder of %s could not be noted: %s", digest.short, error)
        with suppress(OSError):
            os.unlink(temp, dir_fd=locks.fd)


def _withdraw(root: Path, digest: Digest) -> None:
    """Take the announcement back: who is found announced without a lock was killed."""
    quiet = suppress(OSError, Unsafe)
    with quiet, opened(root, create=False) as store, store.below(LOCKS) as locks:
        os.unlink(f"{digest}.holder", dir_fd=locks.fd)
