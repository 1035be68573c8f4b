"""The steps of a check fit their limits, and their inputs are those of the step interface."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import UsageError
from vcc.engine.graphs.check_batches import CheckStep, Limits, Sequences, blocks_for, schedule

LIMITS = st.builds(
    Limits, st.integers(1, 70), st.integers(1, 9), st.sampled_from([1, 4, 16]), st.integers(8, 12)
)


@given(LIMITS)
def test_every_schedule_fits_and_shows_one_token_padding_and_decode(limits) -> None:
    steps = schedule(limits)
    assert (steps[0].tokens, steps[0].seqs) == (1, 1)
    assert any(step.decode for step in steps)
    sequences = Sequences(limits, blocks_for(steps, limits), vocab=50)
    for step in steps:
        assert sum(step.work.values()) <= step.tokens <= limits.max_tokens
        assert len(step.work) <= step.seqs <= limits.max_seqs
        inputs = sequences.inputs(step, ahead=1)
        assert len(inputs["input_ids"]) == step.tokens
        assert inputs["block_table"].shape == (step.seqs, limits.blocks_per_seq)
        assert inputs["seq_lens"].max() <= limits.context
        assert len(set(inputs["slot_mapping"].tolist()) - {-1}) == sum(step.work.values())
    last = next(step for step in reversed(steps) if step.decode)
    sequences.inputs(last, ahead=2)
    sequences.inputs(last, ahead=1)


def test_steps_are_mixed_padded_and_decoded_together() -> None:
    steps = {step.name: step for step in schedule(Limits(64, 8, 16, 32))}
    assert steps["mixed"].work == {0: 1, 2: 5, 1: 1}
    assert steps["prefill, padded"].tokens > sum(steps["prefill, padded"].work.values()) == 35
    assert (steps["decode, padded"].tokens, len(steps["decode, padded"].work)) == (4, 3)


def test_asked_sizes_are_met_exactly() -> None:
    limits = Limits(64, 8, 4, 4)
    steps = {step.name: step for step in schedule(limits, (1, 16, 40))}
    assert steps["40 tokens"].work == {3000: 16, 3001: 16, 3002: 8}
    assert steps["40 tokens"].tokens == 40
    for count in (0, 65):
        with pytest.raises(UsageError, match=f"no step has {count} tokens"):
            schedule(limits, (count,))
    with pytest.raises(UsageError, match="all sequences together hold 16"):
        schedule(Limits(64, 2, 2, 4), (40,))
    with pytest.raises(UsageError, match="too short to check"):
        schedule(Limits(64, 2, 2, 3))


def test_padding_is_told_from_what_is_there() -> None:
    sequences = Sequences(Limits(8, 3, 4, 2), 8, vocab=50)
    inputs = sequences.inputs(CheckStep("", {7: 3}, 5, 2), {7: [4, 5, 6]})
    assert inputs["input_ids"].tolist() == [4, 5, 6, 0, 0]
    assert inputs["slot_mapping"].tolist()[3:] == [-1, -1]
    assert inputs["seq_lens"].tolist() == [3, 0]
    assert inputs["query_start"].tolist() == [0, 3, 3]
    assert inputs["logits_index"].tolist() == [2, 0]
