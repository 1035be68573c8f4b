"""Time and memory of stages: nested ones, repeated ones, and those that an error ends."""

from __future__ import annotations

from mmap import mmap

import pytest

from vcc.engine.events import Events, NotedEvents, NullEvents
from vcc.engine.stage_memory import begin_peak, resident
from vcc.engine.stage_monitor import Monitor

MB = 1 << 20

measures = pytest.mark.skipif(not begin_peak(), reason="/proc does not begin the peak anew")


def pages(count: int) -> mmap:
    """So many MB of the system's memory: the heap of a long process may hold that much free."""
    taken = mmap(-1, count * MB)
    for _ in range(count):
        taken.write(b"x" * MB)
    return taken


class Clock:
    """A clock that tests set."""

    now = 1.0

    def __call__(self) -> float:
        return self.now


def test_stages_have_their_seconds_and_are_told_on() -> None:
    clock, heard = Clock(), NotedEvents(NullEvents())
    monitor = Monitor(heard, clock)
    assert isinstance(monitor, Events)
    with monitor.phase("compile"):
        for seconds in (2.0, 3.0):
            monitor.stage_started("trace")
            clock.now += seconds
            monitor.stage_finished("trace", seconds)
        monitor.note("so it is")
    found = {one.name: one.seconds for one in monitor.stages}
    assert found == {"build/trace": 5.0, "compile": 5.0}
    assert heard.notes == ["so it is"]
    assert monitor.account()[0]["compile"] == 5.0
    assert len(monitor.lines()) == len(monitor.as_dict()["stages"]) == 2


def test_a_stage_that_an_error_left_open_ends_with_the_one_around_it() -> None:
    monitor = Monitor()

    def failing() -> None:
        with monitor.phase("compile"):
            monitor.stage_started("passes")
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    monitor.stage_finished("unknown", 1.0)
    assert [one.name for one in monitor.stages] == ["build/passes", "compile"]


@measures
def test_memory_belongs_to_the_stage_that_took_it() -> None:
    monitor = Monitor()
    with monitor.phase("outer"):
        with monitor.phase("large"):
            pages(96).close()
        with monitor.phase("small"):
            kept = pages(24)
    kept.close()
    found = {one.name: one for one in monitor.stages}
    now, _ = resident()
    assert found["large"].peak_bytes - found["small"].peak_bytes > 40 * MB
    assert found["outer"].peak_bytes >= found["large"].peak_bytes
    assert found["large"].grown_bytes < 48 * MB
    assert found["small"].grown_bytes > 16 * MB
    assert 0 < now <= found["outer"].peak_bytes + 64 * MB
