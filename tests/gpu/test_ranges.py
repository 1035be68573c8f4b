"""Tables of ranges on a device: a step of any size answers as the one table for every size does.

The demo twice in one store: with code for 1 to 8, 9 to 32, 33 to 128, 16 and 64 tokens, and without
ranges. Generated code may sum in another order where a range is known, so logits keep the rule: the
error against fp32 on the CPU is at most 1.25 times that of the table for every size. Where two
tables hold the same kernels the bits are the same, and a graph is bitwise its plain launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from support.numbers import assert_low_precision

from vcc.engine.loading import Model, load
from vcc.engine.runtime.batch import BatchBuilder, Chunk, StepBatch, StepLimits, as_float32
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.kv import BlockPool, BlockTable
from vcc.engine.runtime.player.device import open_device
from vcc.engine.runtime.player.runner import PlayerRunner
from vcc.engine.runtime.requests import Request
from vcc.engine.runtime.sample import SamplingParams

pytestmark = pytest.mark.gpu

SEQS, TOKENS, LENGTH = 16, 128, 160
RANGES = {"compile_ranges": [8, 32], "compile_sizes": [16, 64]}
CAPTURED = [1, 2, 4, 8, 16, 32, 64]
EDGES = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128)
"""Tokens of a step: within each range, at its ends and beside them, and the exact sizes."""

MODES = ("none", "piecewise", "full", "full_decode_only", "full_and_piecewise")


def booted(store: Path, mode: str, **compilation: object) -> Model:
    config = {"cuda_graph_mode": mode, **({} if mode == "none" else {"capture_sizes": CAPTURED})}
    return load(
        "demo",
        target=open_device().arch,
        cache_dir=store,
        dtype="bf16",
        max_model_len=LENGTH,
        max_num_seqs=SEQS,
        max_num_batched_tokens=TOKENS,
        compilation=config | compilation,
        lengths=[LENGTH] * SEQS,
    )


def runner_of(model: Model) -> PlayerRunner:
    made = model.runner
    assert isinstance(made, PlayerRunner)
    counts = made.wait_graphs()
    assert (counts.failed, counts.ready) == (0, counts.wanted), counts.failure
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("ranges") / "store")


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The same step in fp32 on the CPU."""
    return load(
        "demo",
        target="cpu",
        cache_dir=tmp_path_factory.mktemp("exact") / "store",
        dtype="fp32",
        max_model_len=LENGTH,
        max_num_seqs=SEQS,
        max_num_batched_tokens=TOKENS,
        compilation={"mode": 0, "cuda_graph_mode": "none"},
        lengths=[LENGTH] * SEQS,
    )


@pytest.fixture(scope="module")
def whole(store: Path) -> Iterator[PlayerRunner]:
    made = runner_of(booted(store, "none"))
    yield made
    made.close()


@pytest.fixture(scope="module", params=MODES)
def ranged(request: pytest.FixtureRequest, store: Path) -> Iterator[PlayerRunner]:
    made = runner_of(booted(store, request.param, **RANGES))
    yield made
    made.close()


def batch(limits: StepLimits, *lengths: int) -> StepBatch:
    """Fresh sequences with so many tokens each."""
    pool = BlockPool(limits.num_blocks, limits.block_size)
    chunks = []
    for index, length in enumerate(lengths):
        table = BlockTable(pool, limits.max_blocks_per_seq)
        assert table.append(length)
        ids = np.random.default_rng(index).integers(1, 2000, length).astype(np.int32)
        chunks.append(Chunk(ids, 0, table))
    return BatchBuilder(limits).build(chunks)


def lengths_of(tokens: int) -> tuple[tuple[int, ...], ...]:
    """Ways to share so many tokens out: one sequence, several, and one token each."""
    parts = min(4, tokens)
    even = tuple(tokens // parts + (index < tokens % parts) for index in range(parts))
    alone = ((1,) * tokens,) if tokens <= SEQS else ()
    return ((tokens,), even, *alone)


def logits(runner: object, lengths: tuple[int, ...]) -> torch.Tensor:
    found = runner.step(batch(runner.limits, *lengths))  # type: ignore[attr-defined]
    return torch.from_numpy(as_float32(found).copy())


def test_every_size_keeps_the_numbers_rule_in_the_table_of_its_range(
    ranged: PlayerRunner, whole: PlayerRunner, exact: Model
) -> None:
    steps = [lengths for tokens in EDGES for lengths in lengths_of(tokens)]
    mine = torch.cat([logits(ranged, one) for one in steps])
    peer = torch.cat([logits(whole, one) for one in steps])
    reference = torch.cat([logits(exact.runner, one) for one in steps])
    assert_low_precision(mine, reference, peer)
    reasons = " ".join(why for _, why, _ in ranged.stat.summary().reasons)
    for sizes in ("1 to 8", "9 to 32", "33 to 128", "16", "64"):
        assert f"code for {sizes} tokens" in reasons


def test_a_graph_of_a_range_is_bitwise_what_its_plain_launches_give(
    store: Path, ranged: PlayerRunner
) -> None:
    """Steps that fill a captured size, in rows and sequences: both compute the same."""
    plain, compared = runner_of(booted(store, "none", **RANGES)), 0
    try:
        for lengths in (one for tokens in CAPTURED for one in lengths_of(tokens)):
            if padded(ranged, lengths) == (sum(lengths), len(lengths)):
                assert torch.equal(logits(ranged, lengths), logits(plain, lengths)), lengths
                compared += 1
    finally:
        plain.close()
    assert compared >= len(CAPTURED)


def padded(runner: PlayerRunner, lengths: tuple[int, ...]) -> tuple[int, int]:
    """Rows and sequences that a step is run with."""
    shapes, (tokens, seqs) = runner._parts.shapes, (sum(lengths), len(lengths))
    uniform = tokens == seqs
    decision = shapes.dispatcher.dispatch(tokens, uniform)
    shape = shapes.of(decision, tokens, seqs, uniform=uniform)
    return shape.tokens, shape.seqs


def test_a_step_answers_the_same_before_and_after_steps_of_other_ranges(
    ranged: PlayerRunner,
) -> None:
    first = {tokens: logits(ranged, (tokens,)) for tokens in EDGES}
    for tokens in reversed(EDGES):
        assert torch.equal(logits(ranged, (tokens,)), first[tokens]), tokens


def test_decoding_crosses_ranges_as_sequences_end(
    ranged: PlayerRunner, whole: PlayerRunner
) -> None:
    """Sixteen sequences, ever fewer: the exact table of 16, then 9 to 32, then 1 to 8."""
    requests = [
        Request(i, tuple(range(3 + i, 12 + i)), SamplingParams(), 4 + 2 * i) for i in range(SEQS)
    ]
    found: list[dict[int, list[int]]] = []
    for runner in (ranged, whole):
        answers: dict[int, list[int]] = {}
        for event in generate(runner, requests):
            answers.setdefault(event.request, []).append(event.token)
        found.append(answers)
    assert {i: len(tokens) for i, tokens in found[0].items()} == {i: 4 + 2 * i for i in range(SEQS)}
    same = sum(found[0][i][0] == found[1][i][0] for i in range(SEQS))
    assert same >= SEQS - 2, "first tokens: a tie may fall otherwise in bf16"
    steps = {f"{t.low}-{t.high}": t.handle.stats()["steps"] for t in ranged._parts.tables}
    assert steps["16-16"] > 0
    assert steps["1-8"] > 0
