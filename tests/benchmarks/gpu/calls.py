"""A call timed by the wall, with and without torch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS = 5


@dataclass(frozen=True)
class Timed:
    """Microseconds of a call: the median of rounds, and the median of each."""

    us: float
    rounds: tuple[float, ...]


def timed(call: Callable[[], object], seconds: float) -> Timed:
    """Rounds of a call that returns when its work is done, for about `seconds` in all."""
    call()
    count = max(3, int(seconds / ROUNDS / one(call)))
    rounds = [statistics.median(one(call) for _ in range(count)) for _ in range(ROUNDS)]
    found = tuple(round(1e6 * seconds, 1) for seconds in rounds)
    return Timed(statistics.median(found), found)


def one(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
