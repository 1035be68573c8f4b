"""Ledger and Counters: where the time of a process went and what it did.

The ledger hands every moment to exactly one phase: a phase opened inside another pauses the
outer one, so the phases and the remainder `other` always sum to the wall time. What other threads
did meanwhile stands beside them and in no sum.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

Clock = Callable[[], float]

COUNTS = (
    "compiles",
    "traces",
    "passes",
    "pieces",
    "unique_pieces",
    "hits",
    "misses",
    "captures",
    "replays",
    "restores",
    "adapters",
    "adapter_slots",
)


class Ledger:
    """Seconds per phase since `start`.

    Args:
        start: the moment the account begins, on `clock`.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, start: float | None = None, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self._start = clock() if start is None else start
        self._seconds: dict[str, float] = {}
        self._stack: list[str] = []
        self._since = self._start
        self._beside: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the body to `name`, less what phases opened inside it charge."""
        self._turn()
        self._stack.append(name)
        try:
            yield
        finally:
            self._turn()
            self._stack.pop()

    def charge(self, name: str) -> None:
        """Charge all unclaimed time up to now to `name`."""
        self._turn()
        unclaimed = (self._since - self._start) - sum(self._seconds.values())
        self._seconds[name] = self._seconds.get(name, 0.0) + max(0.0, unclaimed)

    def add_beside(self, name: str, seconds: float) -> None:
        """Note work that another thread did meanwhile; it is part of no sum."""
        self._beside[name] = self._beside.get(name, 0.0) + seconds

    @property
    def beside(self) -> Mapping[str, float]:
        """Seconds of work that overlapped with the phases."""
        return dict(self._beside)

    def account(self) -> tuple[Mapping[str, float], float]:
        """Seconds per phase, the remainder as `other`, and the wall time that they sum to."""
        self._turn()
        wall, known = self._since - self._start, dict(self._seconds)
        known["other"] = known.get("other", 0.0) + max(0.0, wall - sum(known.values()))
        return known, wall

    def wall(self) -> float:
        """Seconds since the start of the account."""
        return self._clock() - self._start

    def _turn(self) -> None:
        now = self._clock()
        if self._stack:
            top = self._stack[-1]
            self._seconds[top] = self._seconds.get(top, 0.0) + (now - self._since)
        self._since = now


class Counters:
    """Counts of what a process did; `expect` is the surface that tests use."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._fallbacks: Counter[str] = Counter()

    def add(self, name: str, amount: int = 1) -> None:
        """Add `amount` to a counter of `COUNTS`; an unknown name is a KeyError."""
        if name not in COUNTS:
            raise KeyError(f"no counter {name!r}; known: {', '.join(COUNTS)}")
        self._counts[name] += amount

    def fallback(self, reason: str, steps: int = 1) -> None:
        """Count steps that ran in a slower mode than asked for, with the reason."""
        self._fallbacks[reason] += steps

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def as_dict(self) -> dict[str, object]:
        """All counters, zero ones included, and `fallbacks`: reason -> steps."""
        counts: dict[str, object] = {name: self._counts[name] for name in COUNTS}
        return counts | {"fallbacks": dict(self._fallbacks)}

    @contextmanager
    def expect(self, **wanted: int) -> Iterator[None]:
        """Raise AssertionError unless the body adds exactly these amounts."""
        before = {name: self._counts[name] for name in wanted}
        yield
        found = {name: self._counts[name] - before[name] for name in wanted}
        if found != wanted:
            raise AssertionError(f"counted {found}, expected {wanted}")


def rounded(phases: Mapping[str, float]) -> dict[str, float]:
    """Seconds to the microsecond, for JSON."""
    return {name: round(value, 6) for name, value in phases.items()}


def process_start(clock: Clock = time.perf_counter) -> float:
    """The moment this process was started, on `clock`; now, where that cannot be read.

    Linux keeps it in field 22 of /proc/self/stat, in clock ticks since boot (10 ms steps).
    """
    now = clock()
    try:
        with open("/proc/self/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
        ticks = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks
    except (OSError, AttributeError, ValueError, IndexError):
        return now
    # A container may see another boot clock than its /proc: an absurd age is no age.
    return now - age if 0.0 <= age < 3600.0 else now
