"""Private folders of a build, removed however the build ends.

A build that is killed cannot do that: the name of a folder says whose it is, and the next build
removes those of processes that are gone.

    name = "vcc-build-" process "." 8 hex digits        ; process as in cache/process.py
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from vcc.cache.process import Life, Process

PREFIX = "vcc-build-"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_log = logging.getLogger(__name__)


@contextmanager
def scratch() -> Iterator[Path]:
    """A fresh folder for the body; it is gone afterwards, also after an impatient second Ctrl-C."""
    folder = Path(tempfile.gettempdir()) / f"{PREFIX}{Process.own()}.{os.urandom(4).hex()}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        with undisturbed():
            shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Remove what killed builds of this user left in the temporary folder; never raises.

    A folder stays while its process runs, when that cannot be known from here (another host,
    container or boot), and when it is another user's. A link is never followed nor removed.
    """
    try:
        with os.scandir(tempfile.gettempdir()) as found:
            left = [Path(one.path) for one in found if _is_left(one)]
    except OSError as error:
        _log.debug("the temporary folder cannot be listed: %s", error)
        return
    for folder in left:
        _log.info("removing %s: the build that made it was killed", folder)
        shutil.rmtree(folder, ignore_errors=True)  # refuses links, also at the last moment


def _is_left(entry: os.DirEntry[str]) -> bool:
    if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
        return False
    owner = Process.parse(entry.name.removeprefix(PREFIX))
    own = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    return own and owner is not None and owner.life() is Life.GONE


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold signals that would end the process until the body is through, then let them act.

    Python runs handlers in the main thread alone; in another thread nothing is held.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)

    previous = {number: signal.signal(number, hold) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if held:
        signal.raise_signal(held[0])
