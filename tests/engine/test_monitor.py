"""Every moment is charged once, and counters say what a test expects of them."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from vcc.engine.monitor import Counters, Ledger, process_start


class Clock:
    """A clock that tests set."""

    now = 10.0

    def __call__(self) -> float:
        return self.now


def test_an_inner_phase_pauses_the_outer():
    clock = Clock()
    ledger = Ledger(9.0, clock)
    ledger.charge("import")
    with ledger.phase("outer"):
        clock.now += 2
        with ledger.phase("inner"):
            clock.now += 3
        clock.now += 5
    clock.now += 0.5
    phases, wall = ledger.account()
    assert phases == {"import": 1.0, "outer": 7.0, "inner": 3.0, "other": 0.5}
    assert wall == 11.5


def test_a_phase_may_come_again_and_survives_an_error():
    clock = Clock()
    ledger = Ledger(10.0, clock)

    def failing():
        with ledger.phase("pieces"):
            clock.now += 1
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            failing()
    assert ledger.account()[0]["pieces"] == 2.0


def test_counters_expect_exact_amounts():
    counters = Counters()
    counters.add("traces")
    with counters.expect(compiles=2, traces=0):
        counters.add("compiles", 2)
    with pytest.raises(AssertionError, match="'compiles': 0"), counters.expect(compiles=1):
        pass
    with pytest.raises(KeyError, match="known: compiles"):
        counters.add("compilations")
    counters.fallback("why")
    assert counters.as_dict()["fallbacks"] == {"why": 1}


def test_the_process_start_lies_before_python_started():
    code = (
        "import time; time.sleep(0.3); from vcc.engine.monitor import process_start\n"
        "print(time.perf_counter() - process_start())"
    )
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.28 <= float(done.stdout) <= time.perf_counter() - begun + 0.02


def test_an_unreadable_start_is_now(monkeypatch):
    monkeypatch.setattr(time, "clock_gettime", lambda _: -1.0)
    assert process_start(lambda: 5.0) == 5.0


def test_work_beside_is_told_and_in_no_sum() -> None:
    ledger = Ledger()
    with ledger.phase("graphs"):
        ledger.add_beside("weights", 3.0)
    ledger.add_beside("weights", 1.0)
    phases, wall = ledger.account()
    assert ledger.beside == {"weights": 4.0}
    assert sum(phases.values()) == pytest.approx(wall)
    assert wall < 3
