"""A running build, as its stages see it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from vcc.cache.store import Store
from vcc.engine.events import Events
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
        start = time.perf_counter()
        self.events.stage_started(name, total)
        yield
        self.stages[name] = time.perf_counter() - start
        self.events.stage_finished(name, self.stages[name])
