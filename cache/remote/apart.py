"""Work in a thread of its own: Ctrl-C ends the wait for a client that cannot be interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
POLL_S = 0.2


def apart(work: Callable[[], T], within_s: float) -> T:
    """The answer of `work`, or what it raised; work that never ends goes with the process.

    Args:
        within_s: seconds to wait.

    Raises:
        TimeoutError: there was no answer by then.
    """
    task, ends = _Task(work), time.monotonic() + within_s
    thread = threading.Thread(target=task.run, name="vcc-remote", daemon=True)
    thread.start()
    while thread.is_alive() and time.monotonic() < ends:
        thread.join(POLL_S)  # a wait without an end would keep signals from being handled
    if thread.is_alive():
        raise TimeoutError(f"no answer in {within_s:.0f} s")
    return task.answer()


class _Task(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work, self._done, self._error = work, list[T](), list[BaseException]()

    def run(self) -> None:
        try:
            self._done.append(self._work())
        except BaseException as error:
            self._error.append(error)

    def answer(self) -> T:
        if self._error:
            raise self._error[0]
        return self._done[0]
