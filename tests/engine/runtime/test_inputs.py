"""Step inputs: padding of every field, and nothing out of bounds reaches compiled code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.fake_runner import limits
from support.steps import Sequences, layered

from vcc.cache.errors import UsageError
from vcc.engine.runtime.batch import StepBatch
from vcc.engine.runtime.inputs import StepInputs, check_batch
from vcc.engine.runtime.memory import StepMemory

LIMITS = limits(
    max_tokens=32, max_seqs=8, block_size=8, num_blocks=64, max_blocks_per_seq=8, max_model_len=64
)


def inputs() -> tuple[StepInputs, Callable[[int, int], dict[str, Any]]]:
    """Step inputs over fresh memory, and what a step of T rows and B sequences would read."""
    cache = {"kv_caches_0": torch.zeros(2, 64, 8, 1, 4)}
    sizes = {"T": LIMITS.max_tokens, "B": LIMITS.max_seqs, "K": 64}
    program = layered(1)
    memory = StepMemory(program, cache, sizes)
    names = [v.name for v in program.of_role("input") if v.name not in cache]

    def read(tokens: int, seqs: int) -> dict[str, Any]:
        now = {"T": tokens, "B": seqs, "K": 64}
        return {name: memory.view(name, now).numpy() for name in names}

    return StepInputs(memory, LIMITS), read


def batch(work: dict[int, int], steps: int = 1) -> StepBatch:
    sequences = Sequences(LIMITS)
    for _ in range(steps - 1):
        sequences.batch(work)
    return sequences.batch(work)


def test_without_padding_the_step_reads_the_batch() -> None:
    step, read = inputs()
    mixed = batch({0: 5, 1: 1, 2: 3})
    step.write(mixed, 9, 3)
    for name, found in read(9, 3).items():
        assert np.array_equal(found, getattr(mixed, name)), name


def test_padding_rows_and_sequences_are_inert() -> None:
    """Rows: id 0, position 0, slot -1. Sequences: length 0, no rows, logits of row 0."""
    step, read = inputs()
    step.write(batch({0: 5, 1: 1}), 8, 4)
    found = read(8, 4)
    assert found["input_ids"][6:].tolist() == [0, 0]
    assert found["positions"][6:].tolist() == [0, 0]
    assert found["slot_mapping"][6:].tolist() == [-1, -1]
    assert found["seq_lens"].tolist() == [5, 1, 0, 0]
    assert found["query_start"].tolist() == [0, 5, 6, 6, 6]
    assert found["logits_index"].tolist() == [4, 5, 0, 0]
    assert not found["block_table"][2:].any()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 9), st.integers(0, 3))
def test_what_a_larger_step_left_behind_is_never_read(
    counts: list[int], rows: int, seqs: int
) -> None:
    step, read = inputs()
    step.write(batch(dict.fromkeys(range(8), 4)), 32, 8)
    small = batch(dict(enumerate(counts)))
    tokens = min(small.tokens + rows, LIMITS.max_tokens)
    step.write(small, tokens, small.seqs + seqs)
    found, fresh = read(tokens, small.seqs + seqs), inputs()
    fresh[0].write(small, tokens, small.seqs + seqs)
    for name, expected in fresh[1](tokens, small.seqs + seqs).items():
        assert np.array_equal(found[name], expected), name


Change = Callable[[StepBatch], StepBatch]


def put(name: str, index: Any, number: int) -> Change:
    def change(good: StepBatch) -> StepBatch:
        values = getattr(good, name).copy()
        values[index] = number
        return replace(good, **{name: values})

    return change


def shaped(name: str, by: Callable[[Any], Any]) -> Change:
    return lambda good: replace(good, **{name: by(getattr(good, name))})


CHANGES: dict[str, tuple[Change, str]] = {
    "id of the vocabulary's size": (put("input_ids", 2, LIMITS.vocab), "input_ids"),
    "negative id": (put("input_ids", 2, -1), "input_ids"),
    "position past the context": (put("positions", 2, LIMITS.max_model_len), "positions"),
    "negative position": (put("positions", 0, -1), "positions"),
    "slot past the cache": (put("slot_mapping", 1, 64 * 8), "slot_mapping"),
    "slot below -1": (put("slot_mapping", 1, -2), "slot_mapping"),
    "block past the cache": (put("block_table", (1, 3), 64), "block_table"),
    "negative block": (put("block_table", (1, 3), -1), "block_table"),
    "length past the table": (put("seq_lens", 1, 65), "seq_lens"),
    "length of fewer tokens than rows": (put("seq_lens", 0, 2), "shorter than its rows"),
    "logits past the rows": (put("logits_index", 1, 8), "logits_index"),
    "negative logits": (put("logits_index", 1, -1), "logits_index"),
    "a sequence that takes all rows": (put("query_start", 1, 8), "query_start"),
    "rows from one on": (put("query_start", 0, 1), "query_start"),
    "rows left over": (put("query_start", -1, 7), "query_start"),
    "rows past the step": (put("query_start", -1, 9), "query_start"),
    "a sequence without rows": (put("query_start", 1, 0), "query_start"),
    "int64": (shaped("positions", lambda a: a.astype(np.int64)), "int32"),
    "float": (shaped("seq_lens", lambda a: a.astype(np.float32)), "int32"),
    "positions too few": (shaped("positions", lambda a: a[:-1]), "positions has shape"),
    "slots too many": (shaped("slot_mapping", lambda a: np.append(a, a[:1])), "slot_mapping has"),
    "table of one row": (shaped("block_table", lambda a: a[:1]), "block_table has shape"),
    "table too narrow": (shaped("block_table", lambda a: a[:, :1]), "block_table has shape"),
    "table flat": (shaped("block_table", lambda a: a.ravel()), "block_table has shape"),
    "starts too few": (shaped("query_start", lambda a: a[:-1]), "query_start has shape"),
    "logits too few": (shaped("logits_index", lambda a: a[:-1]), "logits_index has shape"),
    "no tokens": (shaped("input_ids", lambda a: a[:0]), "step of 0 tokens"),
    "no sequences": (shaped("seq_lens", lambda a: a[:0]), "of 0 sequences"),
    "said to be uniform": (lambda good: replace(good, uniform=True), "not uniform"),
}


def good() -> StepBatch:
    return batch({0: 5, 1: 3})


@pytest.mark.parametrize("name", CHANGES)
def test_what_compiled_code_would_read_out_of_bounds_is_refused(name: str) -> None:
    """G107, G108, G113."""
    change, word = CHANGES[name]
    check_batch(good(), LIMITS)
    with pytest.raises(UsageError, match=word):
        check_batch(change(good()), LIMITS)


def test_a_refused_batch_changes_no_input() -> None:
    step, read = inputs()
    step.write(good(), 8, 2)
    before = {name: array.copy() for name, array in read(8, 2).items()}
    with pytest.raises(UsageError):
        step.write(put("logits_index", 1, 99)(batch({0: 7, 1: 1})), 8, 2)
    assert all(np.array_equal(before[name], array) for name, array in read(8, 2).items())


@pytest.mark.parametrize("work", [dict.fromkeys(range(9), 1), {0: 33}])
def test_a_step_beyond_its_limits_is_refused(work: dict[int, int]) -> None:
    wider = replace(LIMITS, max_seqs=16, max_tokens=64, max_blocks_per_seq=8)
    with pytest.raises(UsageError, match="cannot run"):
        check_batch(Sequences(wider).batch(work), LIMITS)


def test_the_largest_step_is_accepted() -> None:
    full = batch(dict.fromkeys(range(8), 4))
    check_batch(full, LIMITS)
    assert (full.tokens, full.seqs) == (32, 8)
    check_batch(batch({0: 8}, steps=8), LIMITS)
