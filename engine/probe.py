"""What a file system can do, found out by doing it in a folder that is removed again.

Nothing in the store rests on locks or clocks; whoever runs it should know what they do here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.digest import Digest

PROCESS_S = 30.0
_EXCLUDED, _NO_LOCKS = 3, 4
# Run by a second process: locks of one process do not exclude it on every file system.
_TRY_LOCK = f"""
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit({_EXCLUDED})
except OSError:
    sys.exit({_NO_LOCKS})
"""


@dataclass(frozen=True, slots=True)
class Probed:
    """What was found out at a place.

    Args:
        kind: of the file system, such as ext4 or nfs4; empty where that cannot be told.
        free: bytes that this account may still write.
        locks: why flock does not keep a second process out; empty where it does.
        links: whether a file can get a second name, which publishing prefers to a rename.
        skew_s: seconds by which the clock that stamps files is ahead of this machine's.
    """

    kind: str
    free: int
    locks: str
    links: bool
    skew_s: float


def probe(place: Path) -> Probed:
    """Make, link, rename, lock and read back small files in a new folder at `place`.

    Raises:
        OSError: one of the things that every store needs does not work here.
    """
    folder = Path(tempfile.mkdtemp(prefix=".vcc-probe-", dir=place))
    try:
        skew = _written_and_read(folder)
        return Probed(
            kind=kind_of(place),
            free=shutil.disk_usage(place).free,
            locks=_locks(folder / "lock"),
            links=_links(folder),
            skew_s=skew,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def kind_of(place: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that `place` lies on; empty where that cannot be told."""
    path, found = os.path.realpath(place), ("", "")
    with suppress(OSError):
        for point, kind in _mounts(mounts):
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(found[0]):  # later mounts lie over earlier ones
                found = (point, kind)
    return found[1]


def _mounts(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_text(errors="surrogateescape").splitlines():
        head, _, tail = line.partition(" - ")
        fields, after = head.split(), tail.split()
        if len(fields) > 4 and after:
            # Blanks stand there as octal escapes.
            point = fields[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
            yield point.encode("latin-1").decode("utf-8", "surrogateescape"), after[0]


def _written_and_read(folder: Path) -> float:
    """Write, sync, rename and read a file; how far the clock of the files is ahead."""
    data, before = os.urandom(4096), time.time()
    first, second = folder / "written", folder / "renamed"
    fd = os.open(first, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(first, second)
    if Digest.of(second.read_bytes()) != Digest.of(data):
        raise OSError(0, "what was written is not what is read back", str(second))
    stamp, after = os.stat(second).st_mtime, time.time()
    if stamp < before:
        return stamp - before
    return max(0.0, stamp - after)


def _links(folder: Path) -> bool:
    try:
        os.link(folder / "renamed", folder / "linked")
    except OSError:
        return False
    return True


def _locks(file: Path) -> str:
    import fcntl

    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        command = [sys.executable, "-I", "-S", "-c", _TRY_LOCK, str(file)]
        done = subprocess.run(command, timeout=PROCESS_S, capture_output=True, check=False)
    except OSError as error:
        return f"flock does not work here: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"a second process waits for a lock for more than {PROCESS_S:.0f} s"
    finally:
        os.close(fd)
    if done.returncode == _EXCLUDED:
        return ""
    if done.returncode == 0:
        return "a second process gets a lock that is held"
    return "a second process cannot lock"
