"""The model runner: equal results in every mode, fixed memory, and nothing between the calls."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from support.interpret import interpret
from support.steps import Sequences, TinyDecoder, layered, runner_of, tiny_decoder
from torch import Tensor

from vcc.cache.errors import IntegrityError, UsageError
from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.program import Symbol
from vcc.engine.runtime.step import BLOCKS, SEQS, TOKENS, ModelRunner, size_kind

MODES = tuple(GraphMode)
WORK = (
    *({0: 5}, {0: 1}, {0: 1, 1: 7}, {0: 1, 1: 1, 2: 3}, {0: 1, 1: 1, 2: 1}),
    *({0: 1, 1: 1, 2: 1, 3: 11}, {1: 1}, {0: 1, 1: 1, 2: 1, 3: 1, 4: 1}, {2: 9, 4: 2}),
)
"""Prefill, decode, mixed; sizes that are captured, padded, and above the largest."""


def logits(runner: ModelRunner, work: Sequence[dict[int, int]] = WORK) -> list[Tensor]:
    sequences = Sequences(runner.limits)
    return [runner.step(sequences.batch(step)).clone() for step in work]


@pytest.fixture(scope="module")
def decoder() -> TinyDecoder:
    return tiny_decoder()


@pytest.fixture(scope="module")
def expected(decoder: TinyDecoder) -> list[Tensor]:
    return logits(decoder.runner(GraphMode.NONE))


@pytest.mark.parametrize("mode", MODES)
def test_all_modes_give_equal_logits(
    decoder: TinyDecoder, expected: list[Tensor], mode: GraphMode
) -> None:
    runner = decoder.runner(mode)
    poison(runner)
    for got, want in zip(logits(runner), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def poison(runner: ModelRunner) -> None:
    """Fill the workspace with what shows in any result that reads it before it is written."""
    runner._parts.codes[0].memory._room.workspace.view(torch.float32).fill_(float("nan"))


def test_the_runner_equals_the_program_run_by_the_book(
    decoder: TinyDecoder, expected: list[Tensor]
) -> None:
    runner = decoder.runner(GraphMode.NONE)
    batch = Sequences(runner.limits).batch(WORK[0])
    program = decoder.pieces.program
    given = dict(decoder.given)
    for value in program.of_role("input"):
        if value.name.startswith("kv_cache"):
            shape = [s if isinstance(s, int) else runner.limits.num_blocks for s in value.shape]
            given[value.name] = torch.zeros(shape)
        else:
            given[value.name] = torch.from_numpy(getattr(batch, value.name).copy())
    (found,) = interpret(decoder.pieces, given)
    torch.testing.assert_close(found, expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_every_fall_back_is_counted_with_its_reason(decoder: TinyDecoder, mode: GraphMode) -> None:
    runner = decoder.runner(mode)
    logits(runner)
    summary = runner.stat.summary()
    assert summary.steps == len(WORK)
    assert summary.raw_tokens == sum(sum(step.values()) for step in WORK)
    by_mode = dict(summary.modes)
    # 8 + 1, 11 + 3 and 11 tokens are above the largest size.
    above = sum(sum(step.values()) > 8 for step in WORK)
    if mode is GraphMode.NONE:
        assert by_mode == {"none": len(WORK)}
    elif mode is not GraphMode.FULL_DECODE_ONLY:
        assert by_mode["none"] == above
        assert any("above the largest size 8" in why for _, why, _ in summary.reasons)
    reasons = {why for where, why, _ in summary.reasons if where == "none"}
    assert all(reasons)
    if mode is GraphMode.FULL_DECODE_ONLY:
        assert any("not uniform decode" in why for why in reasons)


class Stand:
    """Stand-ins for pieces and ops that keep the addresses that they are handed."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[int, ...]]] = []

    def piece(self, name: str) -> Callable[[Sequence[Tensor]], list[Tensor]]:
        def run(arguments: Sequence[Tensor]) -> list[Tensor]:
            self.seen.append((name, tuple(a.data_ptr() for a in arguments)))
            return []

        return run

    def op(self, name: str) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            tensors = [a for a in arguments if isinstance(a, Tensor)]
            self.seen.append((name, tuple(a.data_ptr() for a in tensors)))

        return run

    def runner(self, mode: GraphMode, layers: int = 3) -> ModelRunner:
        pieces = {name: self.piece(name) for name in ("head", "layer", "tail")}
        ops = {name: self.op(name) for name in ("kv", "attention")}
        return runner_of(layered(layers), pieces, ops, mode)


@pytest.mark.parametrize("mode", MODES)
def test_addresses_stay_over_a_thousand_steps(mode: GraphMode) -> None:
    """Every call of every step gets the memory of the first step, whatever its size."""
    stand = Stand()
    runner = stand.runner(mode)
    sequences = Sequences(runner.limits)
    patterns = [{0: 1}, {0: 1, 1: 1}, {0: 1, 1: 1, 2: 1}, dict.fromkeys(range(9), 1)]
    results = set()
    for index in range(1000):
        if index % 50 == 0:
            sequences = Sequences(runner.limits)
        results.add(runner.step(sequences.batch(patterns[index % 4])).data_ptr())
    calls = 3 * 3 + 1
    first = stand.seen[:calls]
    assert [name for name, _ in first] == ["head", *["kv", "attention", "layer"] * 2, *ENDING]
    assert len(stand.seen) == 1000 * calls
    for start in range(0, len(stand.seen), calls):
        assert stand.seen[start : start + calls] == first
    assert len(results) == 1


ENDING = ("kv", "attention", "tail")


def test_a_replay_makes_no_python_call_but_the_splitting_ops() -> None:
    """Pieces are C functions here, as compiled ones are: `append` of a list."""
    ops, ran = Stand(), []
    pieces = dict.fromkeys(("head", "layer", "tail"), ran.append)
    table = {name: ops.op(name) for name in ("kv", "attention")}
    runner = runner_of(layered(3), pieces, table, GraphMode.FULL)
    batch = Sequences(runner.limits).batch({0: 1, 1: 1})
    called: list[str] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_back.f_code.co_name == "replay":
            called.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        runner.step(batch)
    finally:
        sys.setprofile(None)
    assert called == ["run"] * 6, "two ops for each of three layers"
    assert len(ran) == 4


def test_a_step_allocates_no_tensor_memory(decoder: TinyDecoder) -> None:
    """The result is a view of the workspace: the same memory each time, of the batch's rows."""
    runner = decoder.runner(GraphMode.FULL)
    sequences = Sequences(runner.limits)
    first = runner.step(sequences.batch({0: 1, 1: 1, 2: 1}))
    second = runner.step(sequences.batch({0: 1}))
    assert first.data_ptr() == second.data_ptr()
    assert (tuple(first.shape), tuple(second.shape)) == ((3, 160), (1, 160))


@pytest.mark.parametrize("mode", MODES)
def test_serving_captures_nothing(decoder: TinyDecoder, mode: GraphMode) -> None:
    runner = decoder.runner(mode)
    before = runner.gate.captures
    logits(runner)
    assert runner.gate.captures == before


def test_p8_pieces_are_captured_and_ops_are_not() -> None:
    """P8: two attention calls, sizes [1, 2], PIECEWISE: 3 capturable parts, 6 graphs; the ops are
    called in each step."""
    stand = Stand()
    pieces = {name: stand.piece(name) for name in ("head", "layer", "tail")}
    ops = {name: stand.op(name) for name in ("kv", "attention")}
    runner = runner_of(layered(2), pieces, ops, GraphMode.PIECEWISE, (1, 2))
    assert runner.gate.captures == 6
    assert stand.seen == []
    runner.step(Sequences(runner.limits).batch({0: 2}))
    assert [name for name, _ in stand.seen].count("attention") == 2


def test_a_piece_of_fewer_sequences_than_its_graph_runs_directly() -> None:
    """PIECEWISE graphs are keyed by tokens: the tail's is of as many sequences as tokens."""
    stand = Stand()
    runner = stand.runner(GraphMode.PIECEWISE)
    sequences = Sequences(runner.limits)
    before = runner.gate.replays
    assert runner.step(sequences.batch({0: 4})).shape[0] == 1
    assert runner.gate.replays - before == 3, "head and two seams, not the tail"
    assert runner.step(sequences.batch({0: 1, 1: 1, 2: 1, 3: 1})).shape[0] == 4
    assert runner.gate.replays - before == 7


def test_a_refused_batch_runs_nothing_and_the_runner_goes_on(decoder: TinyDecoder) -> None:
    runner = decoder.runner(GraphMode.FULL)
    sequences = Sequences(runner.limits)
    bad = sequences.batch({0: 2})
    bad.input_ids[0] = runner.limits.vocab
    with pytest.raises(UsageError, match="input_ids"):
        runner.step(bad)
    bad.input_ids[0] = 1
    assert runner.step(bad).isfinite().all()
    assert runner.stat.summary().steps == 1


def test_steps_from_two_threads_are_kept_apart() -> None:
    """G114: a step that begins while another runs is refused, and the running one is not hurt."""
    entered, leave = threading.Event(), threading.Event()

    def slow(arguments: Sequence[Tensor]) -> list[Tensor]:
        entered.set()
        leave.wait(30)
        return []

    pieces = {"head": slow, "layer": lambda a: [], "tail": lambda a: []}
    ops = {"kv": lambda *_: None, "attention": lambda *_: None}
    runner = runner_of(layered(1), pieces, ops, GraphMode.FULL)
    results: list[Tensor] = []
    batch = Sequences(runner.limits).batch({0: 1})
    first = threading.Thread(target=lambda: results.append(runner.step(batch)))
    first.start()
    assert entered.wait(30)
    with pytest.raises(UsageError, match="running already"):
        runner.step(batch)
    leave.set()
    first.join()
    assert len(results) == 1
    runner.step(batch)


def test_an_error_in_a_step_ends_its_turn() -> None:
    def broken(arguments: Sequence[Tensor]) -> None:
        raise ZeroDivisionError

    pieces = {"head": broken, "layer": broken, "tail": broken}
    runner = runner_of(layered(1), pieces, {"kv": print, "attention": print}, GraphMode.NONE)
    batch = Sequences(runner.limits).batch({0: 1})
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            runner.step(batch)


@pytest.mark.parametrize("mode", [GraphMode.NONE, GraphMode.FULL_AND_PIECEWISE])
def test_steps_leave_nothing_behind(mode: GraphMode) -> None:
    """G120: as many objects after many steps as before them."""
    pieces = {name: lambda arguments: [] for name in ("head", "layer", "tail")}
    ops = {"kv": lambda *_: None, "attention": lambda *_: None}
    runner = runner_of(layered(3), pieces, ops, mode)
    patterns = [{0: 1}, {0: 1, 1: 1}, {0: 3}, dict.fromkeys(range(9), 1)]

    def steps(count: int) -> int:
        for index in range(count):
            runner.step(Sequences(runner.limits).batch(patterns[index % len(patterns)]))
        gc.collect()
        return len(gc.get_objects())

    before = steps(40)
    assert steps(400) - before < 40


def test_sizes_of_the_step_interface_are_known_and_others_refused() -> None:
    assert size_kind(Symbol("s0", 1, 8, "slot_mapping", 0)) == TOKENS
    assert size_kind(Symbol("s1", 1, 8, "logits_index", 0)) == SEQS
    assert size_kind(Symbol("s2", 1, 8, "kv_caches_3", 1)) == BLOCKS
    for source, dim in (("kv_caches_0", 2), ("block_table", 1), ("other", 0)):
        with pytest.raises(IntegrityError, match="not one of the step interface"):
            size_kind(Symbol("s", 1, 8, source, dim))
