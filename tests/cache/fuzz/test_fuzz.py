"""Readers of untrusted bytes: saved and changed inputs always, atheris where it is installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores import child, exit_of

HERE = Path(__file__).parent
SECONDS, SECONDS_LONG = 12, 600
FEWEST = 2000
"""Inputs that a short run must have tried, on a slow machine too."""


def module(name: str):
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", HERE / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


targets, corpus = module("targets"), module("corpus")
NAMES = tuple(targets.TARGETS)
SAVED = {name: corpus.load(name) for name in NAMES}
CHANGES = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "put", "copy"]), st.integers(0), st.integers(0, 255)),
    max_size=6,
)


def changed(data: bytes, changes) -> bytes:
    """Some bytes flipped, cut away, put in or repeated."""
    for kind, number, byte in changes:
        at = number % (len(data) + 1)
        head, tail = data[:at], data[at:]
        data = {
            "flip": head + bytes([byte]) + tail[1:],
            "cut": head + tail[byte:],
            "put": head + bytes([byte]) + tail,
            "copy": head + data[at : at + byte] + tail,
        }[kind]
    return data


@pytest.mark.parametrize("name", NAMES)
def test_saved_inputs_are_read_or_refused(name):
    assert len(SAVED[name]) > 10
    for data in SAVED[name]:
        targets.attempt(name, data)


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_good_inputs(name):
    for data in corpus.seeds()[name]:
        targets.TARGETS[name](data)


@pytest.mark.parametrize("name", NAMES)
def test_changed_inputs_are_read_or_refused(name):
    @settings(max_examples=150, deadline=None)
    @given(data=st.sampled_from(SAVED[name]), changes=CHANGES)
    def attempts(data, changes):
        targets.attempt(name, changed(data, changes))

    attempts()


def test_a_fault_is_not_taken_for_an_answer(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "filter", lambda data: data[10])
    with pytest.raises(IndexError):
        targets.attempt("filter", b"short")


def fuzzed(name: str, seconds: int, folder: Path) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed (Linux, Python 3.11 to 3.13)")
    words = [sys.executable, str(HERE / "fuzz.py"), name, "--seconds", str(seconds)]
    return subprocess.run(
        [*words, "--faults", str(folder)], capture_output=True, text=True, timeout=seconds + 60
    )


def check_fuzzed(name: str, seconds: int, folder: Path) -> None:
    done = fuzzed(name, seconds, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(folder.iterdir()) == []
    runs = int(re.search(r"number_of_executed_units: (\d+)", done.stderr)[1])
    covered = int(re.findall(r"cov: (\d+)", done.stderr)[-1])
    peak = int(re.search(r"peak_rss_mb: +(\d+)", done.stderr)[1])
    print(f"{name}: {runs} runs, {covered} edges, peak {peak} MB")
    assert runs > FEWEST
    assert covered > 20  # else nothing is instrumented, and inputs are mere noise
    assert peak < 512


@pytest.mark.parametrize("name", NAMES)
def test_atheris_finds_no_fault(name, tmp_path):
    check_fuzzed(name, SECONDS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_atheris_finds_no_fault_in_ten_minutes(name, tmp_path):
    check_fuzzed(name, SECONDS_LONG, tmp_path)


def test_memory_is_capped_while_fuzzing():
    def eats() -> None:
        module("fuzz").limit_memory()
        with pytest.raises(MemoryError):
            bytearray(2 * module("fuzz").MEMORY)

    assert exit_of(child(eats)) == 0
