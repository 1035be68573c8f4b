"""The benchmarks' own measuring is right: memory of a whole tree, failures, limits."""

from __future__ import annotations

import sys
import time

import pytest
from benchmarks.measure import in_squares, median, run, verdicts

CHILD = "b = bytearray(150_000_000)\nimport time\ntime.sleep(0.6)"


def test_peak_memory_covers_grandchildren() -> None:
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILD!r}])"
    found = run([sys.executable, "-c", parent], memory=True)
    assert 150e6 < found.peak_bytes < 300e6
    assert found.seconds > 0.6


def test_memory_is_not_watched_unless_asked_for() -> None:
    assert run([sys.executable, "-c", ""]).peak_bytes == 0


def test_json_is_read_whole_or_from_the_last_line() -> None:
    code = "print('noise'); print('{\"a\": 1}')"
    assert run([sys.executable, "-c", code]).json() == {"a": 1}
    assert run([sys.executable, "-c", "print('{\\n\"a\": 2}')"]).json() == {"a": 2}


def test_a_failing_command_ends_the_benchmark_with_its_output() -> None:
    with pytest.raises(SystemExit, match="no luck"):
        run([sys.executable, "-c", "raise RuntimeError('no luck')"])


def test_the_environment_is_added_to() -> None:
    code = "import json, os; print(json.dumps([os.environ['A'], 'PATH' in os.environ]))"
    assert run([sys.executable, "-c", code], A="b").json() == ["b", True]


def test_a_ratio_above_its_limit_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdicts({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 1.5}) == 1
    assert capsys.readouterr().out.count("ABOVE THE LIMIT") == 1
    assert verdicts({"a": 1.0}, {"a": 1.0}) == 0


def test_median_of_five() -> None:
    assert median([5.0, 1.0, 100.0, 2.0, 3.00001]) == 3.0


def burn(seconds: float) -> None:
    """Take that much processor time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_squares_tell_processor_time_and_not_waiting() -> None:
    def slow() -> None:
        burn(0.002)

    def patient() -> None:
        time.sleep(0.005)
        burn(0.001)

    found = in_squares((slow, slow), (patient, patient), 5, 0.002)
    assert 1.7 < found.ratio < 2.3
    assert found.peer_us < 1500
    assert found.same < 1.3


def test_two_openings_that_differ_are_told() -> None:
    def once() -> None:
        burn(0.001)

    def twice() -> None:
        burn(0.002)

    assert in_squares((once, twice), (once, once), 5, 0.002).same > 1.6
