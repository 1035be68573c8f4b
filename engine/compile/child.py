"""Forked children of a build: no signal is lost or told twice, and none outlives the build."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.process import BaseProcess

from vcc.engine.compile.scratch import ENDING, undisturbed


def begin() -> None:
    """The first call of a child: a group of its own, and signals that end it without a word.

    What comes before this call, such as Ctrl-C to the whole group, the parent tells; it then ends
    the child. Nothing is imported here, as torch takes a second.
    """
    os.setpgid(0, 0)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def running(process: BaseProcess) -> Iterator[None]:
    """Start a child for the body; afterwards it is over, with all that it started.

    Args:
        process: not started yet; its body calls `begin` first.
    """
    with ExitStack() as after:
        with undisturbed():  # a signal must not come between the start and who ends it
            process.start()
            after.callback(_end, process)
        yield


def kill(process: BaseProcess) -> None:
    """End a child that was started, and what it started itself: they share a process group."""
    if process.pid is None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):  # before it has a group of its own
        process.kill()


def _end(process: BaseProcess) -> None:
    with undisturbed():
        kill(process)
        process.join()
