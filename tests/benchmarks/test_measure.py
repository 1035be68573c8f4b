"""The benchmarks' own measuring is right: memory of a whole tree, failures, limits."""

from __future__ import annotations

import sys

import pytest
from benchmarks.measure import median, run, verdicts

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
