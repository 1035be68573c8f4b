"""The private folder of a guest's caches: made for one run, gone afterwards.

The guest holds a lock on it for as long as it lives, so that what is left of a run that was killed
can be told from the folder of a guest that outlived its vcc.

    name = "vcc-run-" process "." 8 hex digits        ; process as in cache/process.py
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.process import Life, Process
from vcc.engine.guest.files import TOPS

PREFIX, LOCK = "vcc-run-", "lock"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Private:
    """A folder with `inductor/` and `triton/` in it, and the descriptor that holds its lock."""

    path: Path
    lock: int


@contextmanager
def private_folder() -> Iterator[Private]:
    """A fresh folder that only this account can enter; raises OSError where none can be made."""
    sweep()
    path = Path(tempfile.gettempdir()) / f"{PREFIX}{Process.own()}.{os.urandom(4).hex()}"
    path.mkdir(mode=0o700)
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for top in TOPS:
            (path / top).mkdir(mode=0o700)
        os.set_inheritable(lock, True)  # the guest takes it along
        yield Private(path, lock)
    finally:
        os.close(lock)
        shutil.rmtree(path, ignore_errors=True)


def sweep() -> None:
    """Remove what killed runs of this user left; never raises."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        for one in found:
            if one.name.startswith(PREFIX) and _is_left(one):
                _log.info("removing %s: the run that made it was killed", one.path)
                shutil.rmtree(one.path, ignore_errors=True)  # refuses links


def _is_left(entry: os.DirEntry[str]) -> bool:
    """Whether a folder is ours, its vcc is gone and no guest holds it."""
    owner = Process.parse(entry.name.removeprefix(PREFIX))
    if owner is None or owner.life() is not Life.GONE or not entry.is_dir(follow_symlinks=False):
        return False
    if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
        return False
    try:
        lock = os.open(Path(entry.path) / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True  # killed before there was one
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
