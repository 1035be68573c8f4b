"""GraphStat: one line per step, totals in memory."""

from __future__ import annotations

from types import SimpleNamespace

from vcc.engine.config.modes import GraphMode
from vcc.engine.runtime.dispatch import Dispatcher
from vcc.engine.runtime.graph_stat import GraphStat, StepRecord


def test_the_sink_is_told_of_each_step_with_raw_padded_mode_and_reason() -> None:
    told: list[StepRecord] = []
    stat = GraphStat()
    made = Dispatcher.build(GraphMode.FULL_AND_PIECEWISE, (1, 2, 4), max_seqs=4)
    stat.record(1, made.dispatch(1, True), 1)
    stat.tell(SimpleNamespace(write=told.append))
    for tokens, uniform in ((3, True), (3, False), (9, False)):
        stat.record(tokens, made.dispatch(tokens, uniform), 3)
    assert [(one.raw_tokens, one.padded_tokens, one.seqs, one.mode) for one in told] == [
        (3, 4, 3, "full"),
        (3, 4, 3, "piecewise"),
        (9, 9, 3, "none"),
    ]
    assert all(one.reason for one in told)
    assert stat.summary().steps == 4


def test_the_summary_counts_modes_reasons_and_padding() -> None:
    stat = GraphStat()
    made = Dispatcher.build(GraphMode.PIECEWISE, (4,), max_seqs=4)
    for tokens in (3, 3, 4, 5):
        stat.record(tokens, made.dispatch(tokens, False), 1)
    summary = stat.summary()
    assert (summary.steps, summary.raw_tokens, summary.padded_tokens) == (4, 15, 17)
    assert summary.modes == (("piecewise", 3), ("none", 1))
    assert sum(count for _, _, count in summary.reasons) == 4
    assert summary.padding == 2 / 17


def test_no_steps_give_an_empty_summary() -> None:
    summary = GraphStat().summary()
    assert (summary.steps, summary.padding, summary.modes) == (0, 0.0, ())
