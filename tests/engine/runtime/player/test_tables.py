"""Tables of ranges on the libcuda double: which one a step takes, and over which memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_cuda import Fake, Launch
from support.fake_cuda.fixtures import RawArena
from support.player_boot import boot, loaded
from support.player_runner import batch, running
from support.ranged_boot import ranged
from support.step_tables import CUBIN, DIGEST, TOKENS, VOCAB, toy_step
from support.supply_case import offers

from vcc.cache.errors import DeviceError, VccError
from vcc.engine.config.modes import GraphMode
from vcc.engine.runtime.batch import StepBatch
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.player import device as devices
from vcc.engine.runtime.player.gemm_calls import Offer
from vcc.engine.runtime.player.handle import Mode, Parts, PlayerHandle, Shape
from vcc.engine.runtime.player.runner import PlayerRunner
from vcc.engine.runtime.player.tables import OpenTable, by_table
from vcc.engine.runtime.requests import Finish, Request
from vcc.engine.runtime.sample import SamplingParams
from vcc.engine.runtime.settings import Play

pytestmark = pytest.mark.usefixtures("double")


@contextmanager
def booted(weights: Path, mode: GraphMode) -> Iterator[PlayerRunner]:
    runner = loaded(ranged(weights, mode))
    runner.wait_graphs()
    try:
        yield runner
    finally:
        runner.close()


def taken(runner: PlayerRunner) -> dict[str, int]:
    """Steps that each table ran."""
    tables = runner._parts.tables
    return {f"{one.low}-{one.high}": one.handle.stats()["steps"] for one in tables}


GRAPHS = {
    GraphMode.NONE: {},
    GraphMode.PIECEWISE: {"1-2": 2 * 3, "3-64": 3, "4-4": 3},
    GraphMode.FULL: {"1-2": 2 * 2, "3-64": 2, "4-4": 2},
    GraphMode.FULL_DECODE_ONLY: {"1-2": 2, "3-64": 1, "4-4": 1},
    GraphMode.FULL_AND_PIECEWISE: {"1-2": 2 + 2 * 3, "3-64": 1 + 3, "4-4": 1 + 3},
}
"""Graphs of each table: four sizes, three pieces, and in pure FULL one for each kind of step."""

STEPS = ((1,), (2,), (3,), (4,), (3, 1), (5,), (8,), (9,), (TOKENS // 4, TOKENS // 4), (1, 1, 1))


@pytest.mark.parametrize("mode", GRAPHS)
def test_a_step_takes_the_table_of_its_size_with_padding(weights: Path, mode: GraphMode) -> None:
    with booted(weights, mode) as runner:
        counts = {
            f"{one.low}-{one.high}": one.handle.graphs().graphs for one in runner._parts.tables
        }
        assert {name: count for name, count in counts.items() if count} == GRAPHS[mode]
        twice = 2 if mode is GraphMode.FULL else 1
        assert runner.gate.captures * twice == sum(GRAPHS[mode].values())
        assert sum(int(str(one["graphs"])) for one in runner.graph_list()) == sum(counts.values())
        for lengths in STEPS:
            step = batch(*lengths, start=4 if set(lengths) == {1} else 0)
            before, modes = taken(runner), dict(runner.stat.summary().modes)
            assert runner.step(step).shape == (step.seqs, VOCAB)
            decision = runner._parts.shapes.dispatcher.dispatch(step.tokens, step.uniform)
            size = decision.descriptor.tokens
            name = "4-4" if size == 4 else "1-2" if size < 3 else "3-64"
            assert taken(runner) == before | {name: before[name] + 1}
            now = dict(runner.stat.summary().modes)
            assert now[decision.mode.value] == modes.get(decision.mode.value, 0) + 1


def test_a_run_may_ask_for_graphs_that_an_exact_size_is_padded_to(weights: Path) -> None:
    asked = ranged(weights, GraphMode.FULL_DECODE_ONLY)
    played = asked.settings.playing(Play(sizes=(1, 8)))
    runner = loaded(replace(asked, settings=played))
    runner.step(batch(1, 1, 1, 1, start=4))
    assert taken(runner) == {"1-2": 0, "3-64": 1, "4-4": 0}
    runner.step(batch(4))
    assert taken(runner)["4-4"] == 1, "without a graph it has its own size"
    runner.close()


def test_the_reason_of_a_step_names_its_table(weights: Path) -> None:
    with booted(weights, GraphMode.FULL_AND_PIECEWISE) as runner:
        for lengths in ((2,), (3,), (7,), (9,)):
            runner.step(batch(*lengths))
        reasons = [why for _, why, _ in runner.stat.summary().reasons]
        ends = [f"code for {sizes} tokens" for sizes in ("1 to 2", "4", "3 to 64", "3 to 64")]
        assert all(why.partition("; code")[1] for why in reasons)
        assert sorted(why.rpartition("; ")[2] for why in reasons) == sorted(ends)


def words_of(fake: Fake, runner: PlayerRunner, step: StepBatch) -> list[tuple[Any, ...]]:
    """The kernels of a step with their addresses as places in regions."""
    fake.clear()
    runner.step(step)
    return [_placed(one, runner.player) for one in fake.launches()]


def _placed(launch: Launch, player: PlayerHandle) -> tuple[Any, ...]:
    pointers = 5 if launch.name == "gemm" else 3
    words = np.frombuffer(launch.words[: 8 * pointers], np.uint64).tolist()
    places = [_home(word, player) for word in words]
    assert places.count(()) == (2 if pointers == 5 else 0), "no addend, no partial products"
    return (launch.name, launch.grid, places, launch.words[8 * pointers :])


def _home(word: int, player: PlayerHandle) -> tuple[int, ...]:
    """Kind of the region, and the byte there; nothing for a null pointer."""
    for one in player.describe()["regions"]:
        if word and 0 <= word - one["address"] <= one["bytes"]:
            return (one["kind"], word - one["address"])
    assert not word, f"{word:x} is in no region"
    return ()


@pytest.mark.parametrize("mode", GRAPHS)
def test_a_table_of_a_range_launches_what_one_for_every_size_does(
    fake: Fake, arena: RawArena, weights: Path, mode: GraphMode
) -> None:
    """The same kernels, grids, numbers, and places in the same regions."""
    with running(arena, mode) as whole, booted(weights, mode) as runner:
        for lengths in ((1,), (2,), (3,), (4,), (3, 1), (9,), (16, 16)):
            step = batch(*lengths, start=4 if lengths == (1,) else 0)
            assert words_of(fake, runner, step) == words_of(fake, whole, step)


def test_all_tables_lie_over_one_memory_that_is_given_back(weights: Path) -> None:
    free = devices.open_device().free_memory
    one = loaded(boot(weights))
    alone = free - devices.open_device().free_memory
    one.close()
    with booted(weights, GraphMode.FULL) as runner:
        assert free - devices.open_device().free_memory == alone
        first, *others = runner._parts.tables
        assert (first.low, first.high) == (3, TOKENS)
        for other in others:
            for name, tensor in other.layout.tensors.items():
                assert tensor.address == first.layout.tensor(name).address
            assert not set(other.layout.slots) & set(first.layout.slots)
        assert runner.io["input_ids"].shape == (TOKENS,)
    assert devices.open_device().free_memory == free


def test_a_failed_boot_of_tables_gives_everything_back(fake: Fake, weights: Path) -> None:
    free = devices.open_device().free_memory
    for call, nth in (("cuStreamCreate", 2), ("cuMemHostAlloc", 4), ("cuGraphInstantiate", 1)):
        fake.clear()
        fake.fail(call, nth)
        with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
            loaded(ranged(weights, GraphMode.FULL))
        gc.collect()
        assert devices.open_device().free_memory == free


def test_the_hot_graph_is_built_before_all_others(fake: Fake, weights: Path) -> None:
    """Two sequences will decode: their graph is in the smallest range, which comes first."""
    asked = ranged(weights, GraphMode.FULL_DECODE_ONLY, lengths=(12, 16))
    seen: list[tuple[int, int]] = []
    kept = PlayerHandle.build

    def build(self: PlayerHandle, shapes: Sequence[Any], hot: int, threads: int) -> None:
        seen.append((shapes[0].tokens, hot))
        kept(self, shapes, hot, threads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlayerHandle, "build", build)
        runner = loaded(asked)
    assert seen[0] == (2, 1)
    assert [hot for _, hot in seen[1:]] == [0, 0]
    runner.close()


REQUESTS = [
    Request(0, (1, 2, 3), SamplingParams(0.7, 5, 0.9, 7), 6),
    Request(1, tuple(range(1, 6)), max_new_tokens=9),
    Request(2, (4,), max_new_tokens=3),
    Request(3, (5, 6), max_new_tokens=12),
]


@pytest.mark.parametrize("mode", GRAPHS)
def test_decoding_goes_on_in_another_table_as_sequences_end(weights: Path, mode: GraphMode) -> None:
    """Four sequences, then three, two, one: the state lies in the memory that tables share."""
    with booted(weights, mode) as runner:
        events = list(generate(runner, REQUESTS))
        for request in REQUESTS:
            mine = [event for event in events if event.request == request.index]
            assert [event.step for event in mine] == list(range(request.max_new_tokens))
            assert mine[-1].finish is Finish.LENGTH
        assert all(steps > 0 for steps in taken(runner).values())
        assert runner.stat.summary().steps == 12


def test_entries_for_a_table_beside_count_in_the_first_ones_memory(arena: RawArena) -> None:
    """The GEMM store may need more workspace for few rows than for many."""
    first = PlayerHandle(arena.handle, toy_step(tokens=(3, TOKENS)).data)
    other = first.beside(toy_step(tokens=(1, 2)).data)
    try:
        first.add_cubin(DIGEST, CUBIN)
        most = [Offer(one.rows, one.shape, 0, 1 << 20) for one in offers(1, 2)]
        assert first.bytes(1).scratch < 1 << 20
        assert other.offer_gemms(most) == [0, 1]
        assert first.bytes(1).scratch == other.bytes(1).scratch == 1 << 20
        first.finish_gemms()
        other.finish_gemms()
        for one in (first, other):
            one.place(8, 8, 1, 1)
        places = [one.describe()["regions"][-1] for one in (first, other)]
        assert places[0] == places[1]
        assert places[0]["bytes"] == 1 << 20
    finally:
        other.close()
        first.close()


def test_a_table_is_placed_after_the_one_whose_memory_it_shares(arena: RawArena) -> None:
    first = PlayerHandle(arena.handle, toy_step(tokens=(3, TOKENS)).data)
    other = first.beside(toy_step(tokens=(1, 2)).data)
    try:
        first.add_cubin(DIGEST, CUBIN)
        with pytest.raises(VccError, match="placed after that one"):
            other.place(8, 8, 1, 1)
        first.place(8, 8, 1, 1)
        other.place(8, 8, 1, 1)
        with pytest.raises(VccError, match="before the memory is placed"):
            first.beside(toy_step(tokens=(4, 4)).data).offer_gemms(offers(4))
    finally:
        other.close()
        first.close()


def test_shapes_go_to_the_tables_in_their_order() -> None:
    tables = [OpenTable(3, 64, None), OpenTable(1, 2, None), OpenTable(4, 4, None)]  # type: ignore[arg-type]
    shapes = [Shape(Mode.FULL, size, 1, Parts.NONE) for size in (8, 4, 1, 2, 3)]
    found = [[one.tokens for one in some] for some in by_table(tables, shapes)]
    assert found == [[8, 3], [1, 2], [4]]
