"""Work in a thread of its own: Ctrl-C ends the wait for a client that cannot be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
POLL_S = 0.2


def apart(work: Callable[[], T]) -> T:
    """The answer of `work`, or what it raised. It must end by itself: its thread is a daemon's."""
    task = _Task(work)
    thread = threading.Thread(target=task.run, name="vcc-remote", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(POLL_S)  # a wait without an end would keep signals from being handled
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
