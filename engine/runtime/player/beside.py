"""Work in a thread of its own, beside what its starter does next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Beside(Generic[Result]):
    """A thread that works once.

    Args:
        work: what it does.
        name: of the thread.

    Attributes:
        seconds: that it took, when it is over.
    """

    def __init__(self, work: Callable[[], Result], name: str) -> None:
        self._result: list[Result] = []
        self._error: BaseException | None = None
        self.seconds = 0.0
        start = time.perf_counter()

        def run() -> None:
            try:
                self._result.append(work())
            except BaseException as error:  # raised again by `result`
                self._error = error
            self.seconds = time.perf_counter() - start

        self._thread = threading.Thread(target=run, name=name)
        self._thread.start()

    def wait(self) -> None:
        """Until it is over."""
        self._thread.join()

    def result(self) -> Result:
        """What it gave, when it is over; what it raised is raised here."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._result[0]
