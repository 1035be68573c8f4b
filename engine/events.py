"""Events: how the engine reports progress without ever printing."""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

BUILDING = "no artifact to boot from, so it is built now"
"""How the note of a build begins; the reason follows."""


@runtime_checkable
class Events(Protocol):
    """What a listener of a build or a boot is told, in order, from one thread."""

    def stage_started(self, stage: str, total: int = 0) -> None:
        """Stage `stage` begins; `total` items of progress will follow (0: not known)."""

    def stage_finished(self, stage: str, seconds: float) -> None:
        """Stage `stage` ended after `seconds` of wall time."""

    def progress(self, item: str, state: str) -> None:
        """Item `item` (a piece id, a file) of the current stage is now in `state`.

        States: "queued", "running", "done", "reused", "failed".
        """

    def note(self, reason: str) -> None:
        """A decision or a degradation a user should hear about, as one line."""


@contextmanager
def timed_stage(
    events: Events, stages: MutableMapping[str, float], name: str, total: int = 0
) -> Iterator[None]:
    """Report a stage, and write down how many seconds of wall time it took if it succeeds.

    Args:
        events: who is told.
        stages: seconds by name of stage; gets this one's.
        name, total: as of `Events.stage_started`.
    """
    start = time.perf_counter()
    events.stage_started(name, total)
    yield
    stages[name] = time.perf_counter() - start
    events.stage_finished(name, stages[name])


class NullEvents:
    """Hears everything and says nothing."""

    __slots__ = ()

    def stage_started(self, stage: str, total: int = 0) -> None:
        """Ignore."""

    def stage_finished(self, stage: str, seconds: float) -> None:
        """Ignore."""

    def progress(self, item: str, state: str) -> None:
        """Ignore."""

    def note(self, reason: str) -> None:
        """Ignore."""


class NotedEvents:
    """Passes everything on to another listener and keeps the notes, each of which is said once.

    Args:
        listener: who is told.
    """

    __slots__ = ("_listener", "notes")

    def __init__(self, listener: Events) -> None:
        self._listener = listener
        self.notes: list[str] = []

    def stage_started(self, stage: str, total: int = 0) -> None:
        """Pass on."""
        self._listener.stage_started(stage, total)

    def stage_finished(self, stage: str, seconds: float) -> None:
        """Pass on."""
        self._listener.stage_finished(stage, seconds)

    def progress(self, item: str, state: str) -> None:
        """Pass on."""
        self._listener.progress(item, state)

    def note(self, reason: str) -> None:
        """Keep and pass on, unless it was said before: look-up and build meet the same trouble."""
        if reason not in self.notes:
            self.notes.append(reason)
            self._listener.note(reason)
