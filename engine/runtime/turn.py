"""One user at a time for memory that every call writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from vcc.cache.errors import UsageError


class Turn:
    """Refuses a call that begins while another one is under way, from any thread or from within."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the turn for the body.

        Raises:
            UsageError: somebody holds it.
        """
        if not self._lock.acquire(blocking=False):
            raise UsageError(
                "the model is running already",
                "its memory is fixed, so it computes one step at a time",
                "call it from one thread, or load it once for each thread",
            )
        try:
            yield
        finally:
            self._lock.release()
