"""Private folders of a build, removed however the build ends."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def scratch() -> Iterator[Path]:
    """A fresh folder for the body; it is gone afterwards, also after an impatient second Ctrl-C."""
    folder = Path(tempfile.mkdtemp(prefix="vcc-build-"))
    try:
        yield folder
    finally:
        with undisturbed():
            shutil.rmtree(folder, ignore_errors=True)


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
