"""The trail of a boot: which artifacts were looked at, which one was taken, what was built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vcc.cache.errors import IntegrityError, VccError
from vcc.cache.gate import Untrusted

if TYPE_CHECKING:
    from vcc.cache.loaded import Loaded
    from vcc.cache.request import Entry
    from vcc.engine.events import Events

OVER = ("done", "reused", "failed")
"""States of an item that do not change any more."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A look-up that nothing answered, or an artifact that answered and was not used.

    Attributes:
        artifact: its id; None where nothing answered.
        outcome: "nothing", "untrusted", "damaged" or "unreadable".
        why: the reason in one line.
    """

    artifact: str | None
    outcome: str
    why: str


@dataclass(slots=True)
class Trail:
    """What a session met on its way to a booted artifact.

    Attributes:
        misses: in their order.
        entry: of the artifact that was taken from the store; None for a fresh build.
        loaded: the artifact that was booted; its account of verified bytes goes on.
        booted: what was made of it: a decoder's runner with its loader, or a module's forward.
    """

    misses: list[Miss] = field(default_factory=list)
    entry: Entry | None = None
    loaded: Loaded | None = None
    booted: object | None = None

    def passed(self, entry: Entry, error: VccError) -> None:
        """An artifact was not used."""
        outcome = "untrusted" if isinstance(error, Untrusted) else "unreadable"
        if isinstance(error, IntegrityError) and not isinstance(error, Untrusted):
            outcome = "damaged"
        self.misses.append(Miss(entry.artifact, outcome, str(error)))

    def nothing(self, why: str) -> None:
        """No artifact can be booted."""
        self.misses.append(Miss(None, "nothing", why))

    def taken(self, entry: Entry | None, loaded: Loaded, booted: object) -> None:
        """An artifact was booted."""
        self.entry, self.loaded, self.booted = entry, loaded, booted


@dataclass(frozen=True, slots=True)
class Item:
    """Something that a stage did: a piece that was compiled, a graph that was captured."""

    stage: str
    item: str
    state: str


class WatchedEvents:
    """Passes everything on to another listener, and keeps stages and what became of their items.

    Args:
        listener: who is told.
    """

    __slots__ = ("_listener", "_stage", "items", "stages")

    def __init__(self, listener: Events) -> None:
        self._listener, self._stage = listener, ""
        self.stages: list[tuple[str, float]] = []
        self.items: list[Item] = []

    def stage_started(self, stage: str, total: int = 0) -> None:
        """Pass on."""
        self._stage = stage
        self._listener.stage_started(stage, total)

    def stage_finished(self, stage: str, seconds: float) -> None:
        """Keep and pass on."""
        self.stages.append((stage, seconds))
        self._listener.stage_finished(stage, seconds)

    def progress(self, item: str, state: str) -> None:
        """Keep what is over, and pass on."""
        if state in OVER:
            self.items.append(Item(self._stage, item, state))
        self._listener.progress(item, state)

    def note(self, reason: str) -> None:
        """Pass on."""
        self._listener.note(reason)
