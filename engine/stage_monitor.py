"""Monitor: time and memory of every stage of a build and every phase of a boot.

monitor = vcc.Monitor()
model = vcc.load("demo", monitor=monitor)
print("\\n".join(monitor.lines()))

A stage of a build stands under `build/` and its name; phases of a boot stand by their name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vcc.engine.events import Events, NullEvents
from vcc.engine.monitor import Clock, Ledger
from vcc.engine.stage_memory import begin_peak, largest_child, resident

BUILD = "build/"


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage took; a stage that came several times is added up.

    Attributes:
        name: of the stage.
        seconds: from its begin to its end, with stages inside it.
        grown_bytes: memory of this process at its end, less that at its begin.
        peak_bytes: the most that this process had within it; 0 where the system does not say.
        child_bytes: the largest process that had ended by then, such as a compiler.
    """

    name: str
    seconds: float
    grown_bytes: int
    peak_bytes: int
    child_bytes: int

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "name": self.name,
            "seconds": round(self.seconds, 6),
            "grown_bytes": self.grown_bytes,
            "peak_bytes": self.peak_bytes,
            "child_bytes": self.child_bytes,
        }


@dataclass(slots=True)
class _Open:
    """A stage under way."""

    name: str
    begun: float
    resident: int
    peak: int = 0


class Monitor(Ledger):
    """A ledger that measures memory too, and hears the stages of a build.

    Args:
        listener: who is told the same; None: nobody.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, listener: Events | None = None, clock: Clock = time.perf_counter) -> None:
        super().__init__(None, clock)
        self._listener: Events = NullEvents() if listener is None else listener
        self._open: list[_Open] = []
        self._stages: dict[str, Stage] = {}
        self._measures = False  # whether the most that the system says is that since `_settle`

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage that ended, in the order in which the first of its name did."""
        return tuple(self._stages.values())

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"stages": [one.as_dict() for one in self.stages]}

    def lines(self) -> list[str]:
        """For people: a line a stage."""
        width = max((len(one.name) for one in self.stages), default=0)
        return [
            f"{one.name:{width}}  {one.seconds:9.3f} s  peak {one.peak_bytes / 1e6:8.1f} MB  "
            f"grown {one.grown_bytes / 1e6:+8.1f} MB"
            for one in self.stages
        ]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the body to a phase, and measure its memory."""
        with super().phase(name):
            self._begin(name)
            try:
                yield
            finally:
                self._end(name)

    def stage_started(self, stage: str, total: int = 0) -> None:
        """A stage of a build begins."""
        self._begin(BUILD + stage)
        self._listener.stage_started(stage, total)

    def stage_finished(self, stage: str, seconds: float) -> None:
        """A stage of a build ended."""
        self._end(BUILD + stage)
        self._listener.stage_finished(stage, seconds)

    def progress(self, item: str, state: str) -> None:
        """Pass on."""
        self._listener.progress(item, state)

    def note(self, reason: str) -> None:
        """Pass on."""
        self._listener.note(reason)

    def _begin(self, name: str) -> None:
        self._settle()
        self._open.append(_Open(name, self._clock(), resident()[0]))

    def _end(self, name: str) -> None:
        """End a stage, and those inside it that an error left open."""
        if all(one.name != name for one in self._open):
            return
        self._settle()
        while self._open:
            ended = self._open.pop()
            self._keep(ended)
            if ended.name == name:
                return

    def _settle(self) -> None:
        """Give the peak so far to every stage under way, and begin a new one."""
        peak = resident()[1] if self._measures else 0
        for one in self._open:
            one.peak = max(one.peak, peak)
        self._measures = begin_peak()

    def _keep(self, ended: _Open) -> None:
        seconds, grown = self._clock() - ended.begun, resident()[0] - ended.resident
        peak, child = ended.peak, largest_child()
        before = self._stages.get(ended.name)
        if before is not None:
            seconds, grown = seconds + before.seconds, grown + before.grown_bytes
            peak = max(peak, before.peak_bytes)
        self._stages[ended.name] = Stage(ended.name, seconds, grown, peak, child)
