"""A running build, as its stages see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from vcc.cache.store import Store
from vcc.engine.events import Events, timed_stage
from vcc.engine.monitor import Counters
from vcc.engine.request import Settled


@dataclass(frozen=True, slots=True)
class Build:
    """A running build: what is built, where to, and who is told."""

    settled: Settled
    store: Store
    events: Events
    counters: Counters
    code: Mapping[str, str]
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[None]:
        """Time a stage and report it."""
        with timed_stage(self.events, self.stages, name, total):
            yield
