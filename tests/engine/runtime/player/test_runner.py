"""PlayerRunner: rows D and W of the behaviours, what is sent, and generation by the device."""

from __future__ import annotations

import numpy as np
import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.player_runner import batch, limits, running
from support.step_tables import SEQS, TOKENS, VOCAB

from vcc.cache.errors import UsageError
from vcc.engine.config.modes import GraphMode
from vcc.engine.runtime.batch import StepBatch
from vcc.engine.runtime.device_steps import DecodeRow, SampleRow
from vcc.engine.runtime.dispatch import Dispatcher
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.player.handle import Mode, Parts, Shape
from vcc.engine.runtime.player.runner import PlayerRunner
from vcc.engine.runtime.player.shapes import StepShapes
from vcc.engine.runtime.requests import Finish, Request
from vcc.engine.runtime.sample import SamplingParams

CASES = {
    GraphMode.NONE: (0, {3: "none", 9: "none"}, "none"),
    GraphMode.PIECEWISE: (4 * 3, {3: "piecewise", 9: "none"}, "piecewise"),
    GraphMode.FULL: (4, {3: "full", 9: "none"}, "full"),
    GraphMode.FULL_DECODE_ONLY: (4, {3: "none", 9: "none"}, "full"),
    GraphMode.FULL_AND_PIECEWISE: (4 + 4 * 3, {3: "piecewise", 9: "none"}, "full"),
}
"""Graphs of a step of three pieces and four sizes; mode of a mixed step by tokens; of decode."""


@pytest.mark.parametrize("mode", CASES)
def test_modes_and_counts(arena: RawArena, mode: GraphMode) -> None:
    graphs, mixed, decode = CASES[mode]
    with running(arena, mode) as runner:
        assert runner.gate.captures == graphs
        twice = mode is GraphMode.FULL  # one for decode steps, one for others
        assert runner.player.graphs().graphs == graphs * (1 + twice)
        for tokens, wanted in mixed.items():
            assert _mode_of(runner, batch(tokens)) == wanted
        assert _mode_of(runner, batch(1, 1, 1, start=4)) == decode


def _mode_of(runner: PlayerRunner, step: StepBatch) -> str:
    before = dict(runner.stat.summary().modes)
    assert runner.step(step).shape == (step.seqs, VOCAB)
    after = dict(runner.stat.summary().modes)
    return next(mode for mode, count in after.items() if count != before.get(mode, 0))


@pytest.mark.parametrize("mode", CASES)
def test_every_mode_launches_the_same_kernels(fake: Fake, arena: RawArena, mode: GraphMode) -> None:
    with running(arena, GraphMode.NONE) as plain, running(arena, mode) as runner:
        for step in (batch(4), batch(3, 1), batch(1, 1, 1, 1, start=4)):
            names = []
            for one in (plain, runner):
                fake.clear()
                one.step(step)
                names.append([launch.name for launch in fake.launches()])
            wanted, found = names
            if "sample" in found and "sample" not in wanted:  # a graph ends with its tail
                wanted = [*wanted, "sample"]
            assert [_kind(name) for name in found] == [_kind(name) for name in wanted]


@pytest.mark.parametrize("mode", [GraphMode.FULL, GraphMode.FULL_DECODE_ONLY])
def test_a_decode_step_takes_the_decode_kernels_of_a_graph(
    fake: Fake, arena: RawArena, mode: GraphMode
) -> None:
    with running(arena, mode) as runner:
        for step, kernel in ((batch(1, 1, 1, start=4), "decode"), (batch(3), "mixed")):
            fake.clear()
            runner.step(step)
            names = {launch.name for launch in fake.launches()}
            assert {name for name in names if name.endswith("_attention")} == {
                f"{kernel}_attention"
            }
        assert runner.player.stats()["graph_launches"] == (2 if mode is GraphMode.FULL else 1)


def test_hot_graphs_are_built_first() -> None:
    for mode in (GraphMode.FULL, GraphMode.FULL_DECODE_ONLY, GraphMode.FULL_AND_PIECEWISE):
        dispatcher = Dispatcher.build(mode, (1, 2, 4, 8), max_seqs=SEQS)
        shapes, hot = StepShapes(dispatcher, SEQS, samples=True).graphs(expected=3)
        assert hot == 1
        assert shapes[0] == Shape(Mode.FULL, 4, 4, Parts.UNIFORM | Parts.SAMPLE)
        assert len(set(shapes)) == len(shapes)
        decode = [Parts.UNIFORM in shape.parts for shape in shapes]
        assert decode == sorted(decode, reverse=True)


def _kind(name: str) -> str:
    return "attention" if name.endswith("_attention") else name


def test_inputs_reach_the_device_padded_as_on_the_cpu(arena: RawArena) -> None:
    with running(arena, GraphMode.FULL_DECODE_ONLY) as runner:
        step = batch(1, 1, 1, start=5)
        runner.step(step)
        found = {name: _device(runner, name) for name in ("input_ids", "slot_mapping", "seq_lens")}
        assert found["input_ids"][:4].tolist() == [1, 1, 1, 0]
        assert found["slot_mapping"][:4].tolist() == [*step.slot_mapping.tolist(), -1]
        assert found["seq_lens"][:4].tolist() == [6, 6, 6, 0]
        assert _device(runner, "query_start")[:5].tolist() == [0, 1, 2, 3, 3]
        table = _device(runner, "block_table").reshape(SEQS, -1)
        assert table[:3].tolist() == step.block_table.tolist()


def _device(runner: PlayerRunner, name: str) -> np.ndarray:
    tensor = runner.io[name].tensor
    return runner.player.read(tensor.address, tensor.bytes).view(np.int32)


def test_a_step_out_of_bounds_is_refused_before_anything_is_sent(
    fake: Fake, arena: RawArena
) -> None:
    with running(arena, GraphMode.NONE) as runner:
        bad = batch(4)
        bad.input_ids[0] = VOCAB
        fake.clear()
        with pytest.raises(UsageError, match="input_ids"):
            runner.step(bad)
        assert fake.count("cuLaunchKernel") == 0


def test_slots_take_turns(arena: RawArena) -> None:
    with running(arena, GraphMode.NONE) as runner:
        assert [runner.player.slot() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_logits_come_back_in_fp32_rows(arena: RawArena) -> None:
    with running(arena, GraphMode.NONE) as runner:
        tensor = runner.io["logits"].tensor
        ones = np.full(SEQS * VOCAB, 0x3F80, np.uint16)  # 1.0 in bf16
        runner.player.write(tensor.address, ones)
        found = runner.step(batch(2, 3))
        assert found.dtype == np.float32
        assert (found == 1.0).all()


REQUESTS = [
    Request(0, (1, 2, 3), SamplingParams(0.7, 5, 0.9, 2**63 + 1), 6),
    Request(1, tuple(range(1, 6)), max_new_tokens=9),
    Request(2, (4,), max_new_tokens=3),
]


@pytest.mark.parametrize("mode", CASES)
def test_the_device_answers_every_request_to_its_length(arena: RawArena, mode: GraphMode) -> None:
    with running(arena, mode) as runner:
        events = list(generate(runner, REQUESTS))
        for request in REQUESTS:
            mine = [event for event in events if event.request == request.index]
            assert [event.step for event in mine] == list(range(request.max_new_tokens))
            assert [event.finish for event in mine[:-1]] == [None] * (len(mine) - 1)
            assert mine[-1].finish is Finish.LENGTH
        steps = runner.stat.summary().steps
        assert steps == 9  # the longest answer: prefill, then one a step


def test_sampling_parameters_reach_the_device(arena: RawArena) -> None:
    with running(arena, GraphMode.NONE) as runner:
        list(generate(runner, REQUESTS[:1]))
        assert _device(runner, "step")[0] == 0  # where the run began; its head counts on
        assert _device(runner, "top_k")[0] == 5
        assert _device(runner, "active")[:2].tolist() == [1, 0]
        assert _device(runner, "temperature").view(np.float32)[0] == np.float32(0.7)
        assert int(_device(runner, "seed").view(np.uint64)[0]) == 2**63 + 1


def test_sampling_parameters_beyond_the_types_of_the_device_mean_the_most(arena: RawArena) -> None:
    most = SamplingParams(temperature=1e308, top_k=99_999_999_999)
    with running(arena, GraphMode.NONE) as runner:
        list(generate(runner, [Request(0, (1, 2), most, 2)]))
        assert _device(runner, "top_k")[0] == 2**31 - 1
        assert _device(runner, "temperature").view(np.float32)[0] == np.float32(1e30)


def test_a_stop_token_ends_an_answer_in_the_loop(arena: RawArena) -> None:
    """The double's token is always 0."""
    with running(arena, GraphMode.FULL) as runner:
        ends = Request(0, (1, 2), max_new_tokens=8, eos=frozenset({0}))
        goes = Request(1, (3, 4), max_new_tokens=8)
        events = list(generate(runner, [ends, goes]))
        assert [e.finish for e in events if e.request == 0] == [Finish.STOP]
        assert len([e for e in events if e.request == 1]) == 8


def test_a_token_of_nan_is_told_with_its_request_and_step(arena: RawArena) -> None:
    """The double's kernels write nothing: a word put in `token` is what a step chooses."""
    with running(arena, GraphMode.FULL) as runner:
        token = runner.io["token"].tensor
        runner.player.write(token.address, np.array([-1 - 7, 9, -1], np.int32))
        prompts = ((1, 2), (3, 4), (5, 6))
        requests = [Request(i, ids, max_new_tokens=1) for i, ids in enumerate(prompts)]
        told = [(e.request, e.step, e.token, e.finite) for e in generate(runner, requests)]
        assert told == [(0, 0, 7, False), (1, 0, 9, True), (2, 0, 0, False)]


def test_a_run_goes_on_from_tokens_of_nan(fake: Fake, arena: RawArena) -> None:
    """What the device holds as -1 - id is the token that the next run is given."""

    def row(token: int, position: int) -> DecodeRow:
        sample = SampleRow(SamplingParams(), 0, position, token)
        return DecodeRow(sample, position, np.arange(4, dtype=np.int32), frozenset())

    with running(arena, GraphMode.FULL) as runner:
        for token, position, copies in ((-1 - 7, 2, True), (7, 4, False), (8, 6, True)):
            fake.clear()
            words = [one.tolist() for one in runner.decoding.run([row(token, position)], 2, 1)]
            assert words == [[8 if copies and position > 2 else -1 - 7]] * 2
            assert bool(fake.count("cuMemcpyHtoDAsync")) == copies


def test_an_abandoned_answer_leaves_the_runner_usable(arena: RawArena) -> None:
    with running(arena, GraphMode.FULL) as runner:
        events = generate(runner, [Request(0, (1, 2), max_new_tokens=12)])
        for _ in range(3):
            next(events)
        events.close()
        assert len(list(generate(runner, [Request(0, (1, 2), max_new_tokens=4)]))) == 4


def test_many_requests_share_few_blocks(arena: RawArena) -> None:
    """Blocks for the longest of two at a time: others wait, some are computed again."""
    with running(arena, GraphMode.FULL, blocks=6) as runner:
        requests = [Request(i, (1, 2, 3), max_new_tokens=10) for i in range(5)]
        events = list(generate(runner, requests))
        assert sorted(e.request for e in events if e.finish) == [0, 1, 2, 3, 4]
        assert len(events) == 50


def test_gaps_are_measured(arena: RawArena) -> None:
    with running(arena, GraphMode.FULL) as runner:
        list(generate(runner, [Request(0, (1, 2), max_new_tokens=14)]))
        assert len(runner.decoding.gaps) >= 8
        assert all(gap > 0 for gap in runner.decoding.gaps)


def test_limits_hold_the_table(arena: RawArena) -> None:
    with running(arena, GraphMode.NONE) as runner:
        assert runner.limits == limits()
        assert runner.limits.max_tokens == TOKENS


def test_the_list_of_graphs_is_what_was_built(arena: RawArena) -> None:
    for mode, (graphs, _, _) in CASES.items():
        with running(arena, mode) as runner:
            found = runner.graph_list()
            twice = mode is GraphMode.FULL
            assert sum(int(str(one["graphs"])) for one in found) == graphs * (1 + twice)
            assert all(one["built"] for one in found)
            assert {one["mode"] for one in found} <= {"full", "piecewise"}


def test_products_of_the_graphs_have_a_route(arena: RawArena) -> None:
    with running(arena, GraphMode.FULL) as runner:
        found = runner.gemm_routes()
        sizes = {(one.tokens, one.seqs) for one in runner._parts.shapes.graphs(0)[0]}
        told = [one for tokens, seqs in sizes for one in runner.player.gemms(tokens, seqs)]
        assert sum(int(str(one["count"])) for one in found) == len(told) > 0
        assert {one["route"] for one in found} == {one["route"] for one in told}
        assert {one["dtype"] for one in found} == {"bfloat16"}
