"""A batch trace: a whole line a step at once, and the way back."""

from __future__ import annotations

import json

import pytest

from vcc.cache.errors import StorageError, UsageError
from vcc.engine.config.modes import GraphMode
from vcc.engine.runtime.batch_trace import BatchTrace, read_trace
from vcc.engine.runtime.dispatch import Dispatcher
from vcc.engine.runtime.graph_stat import GraphStat, StepRecord

STEPS = [
    StepRecord(9, 9, 2, "none", "no graph"),
    StepRecord(2, 4, 2, "full", "2 tokens padded to 4"),
]


def test_each_step_is_a_line_that_is_there_at_once(tmp_path) -> None:
    file = tmp_path / "trace"
    stat = GraphStat(BatchTrace(file))
    made = Dispatcher.build(GraphMode.FULL_AND_PIECEWISE, (1, 2, 4), max_seqs=4)
    for number, (tokens, seqs) in enumerate(((3, 3), (3, 2), (9, 4))):
        stat.record(tokens, made.dispatch(tokens, tokens == seqs), seqs)
        assert len(file.read_text().splitlines()) == number + 1
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    names = ("step", "raw_tokens", "padded_tokens", "seqs", "mode")
    assert [tuple(one[name] for name in names) for one in lines] == [
        (0, 3, 4, 3, "full"),
        (1, 3, 4, 2, "piecewise"),
        (2, 9, 9, 4, "none"),
    ]
    assert all(one["reason"] for one in lines)


def test_a_trace_reads_back_and_begins_anew_when_written_again(tmp_path) -> None:
    file = tmp_path / "trace"
    for _ in range(2):
        trace = BatchTrace(file)
        for step in STEPS:
            trace.write(step)
        trace.close()
    assert list(read_trace(file)) == STEPS
    assert [one.uniform for one in STEPS] == [False, True]


def test_a_last_line_that_is_cut_off_is_left_out(tmp_path) -> None:
    file = tmp_path / "trace"
    trace = BatchTrace(file)
    for step in STEPS:
        trace.write(step)
    file.write_bytes(file.read_bytes()[:-5])
    assert list(read_trace(file)) == STEPS[:1]


def test_a_place_that_cannot_be_written_is_refused(tmp_path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        BatchTrace(tmp_path / "no" / "trace")


def test_a_full_disk_is_an_error_of_the_step() -> None:
    from pathlib import Path

    trace = BatchTrace(Path("/dev/full"))
    with pytest.raises(StorageError, match="No space left"):
        trace.write(STEPS[0])


@pytest.mark.parametrize(
    "line", ["", "{", "[]", '{"raw_tokens": "1"}', "[" * 3000, "9" * 9000, '{"a": 1}']
)
def test_a_line_that_is_no_step_is_named(tmp_path, line) -> None:
    file = tmp_path / "trace"
    trace = BatchTrace(file)
    trace.write(STEPS[0])
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(UsageError, match="line 2 is no step"):
        list(read_trace(file))


def test_a_negative_count_is_no_step(tmp_path) -> None:
    file = tmp_path / "trace"
    trace = BatchTrace(file)
    trace.write(StepRecord(-1, 0, 0, "none", ""))
    with pytest.raises(UsageError, match="line 1"):
        list(read_trace(file))
