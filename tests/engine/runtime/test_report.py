"""The report's phases sum to its wall time, and its JSON has the promised fields."""

from __future__ import annotations

import json
import re

import pytest

from vcc.engine.monitor import Counters, Ledger
from vcc.engine.runtime.report import Answer, ledger_lines, make_report


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def _report(**more):
    clock = Clock()
    ledger, counters = Ledger(0.0, clock), Counters()
    for name, seconds in (
        ("import", 0.9),
        ("weights", 0.2),
        ("first_token", 0.05),
        ("generate", 2.0),
    ):
        with ledger.phase(name):
            clock.now += seconds
    clock.now += 0.1
    counters.add("hits")
    counters.fallback("9 tokens above the largest graph", 3)
    answers = [Answer("a", "b", (1, 2, 3), "length"), Answer(None, None, (4, 5), "stop")]
    return make_report(ledger, counters, answers, artifact="ab", first_token_seconds=1.15, **more)


def test_phases_sum_to_the_wall_time():
    report = _report()
    assert report.seconds == pytest.approx(3.25)
    assert sum(report.phases.values()) == pytest.approx(report.seconds)
    assert report.phases["other"] == pytest.approx(0.1)
    assert report.tokens_per_second == pytest.approx(4 / 2.0)


def test_json_has_the_promised_fields():
    found = json.loads(json.dumps(_report(notes=("said",)).as_dict()))
    assert found["prompts"][0] == {
        "prompt": "a",
        "text": "b",
        "token_ids": [1, 2, 3],
        "finish_reason": "length",
        "not_finite": 0,
    }
    assert {"import", "resolve", "verify", "weights", "pieces", "golden", "first_token"} <= set(
        found["phases"]
    )
    assert {"compiles", "traces", "hits", "misses", "captures", "replays"} <= set(found["counters"])
    assert found["counters"]["hits"] == 1
    assert found["counters"]["fallbacks"] == {"9 tokens above the largest graph": 3}
    assert found["notes"] == ["said"]


def test_lines_name_every_phase_that_took_time_and_every_fallback():
    text = "\n".join(ledger_lines(_report()))
    assert re.search(r"weights 200\.0 ms .*total 3\.25 s", text)
    assert "first token after 1.15 s, then 2.0 tokens/s" in text
    assert "3 steps: 9 tokens above the largest graph" in text
    assert "golden" not in text


def test_a_run_without_tokens_has_no_speed():
    report = make_report(Ledger(), Counters(), [], artifact=None, first_token_seconds=None)
    assert report.tokens_per_second is None
    assert not any(line.startswith("speed") for line in ledger_lines(report))
