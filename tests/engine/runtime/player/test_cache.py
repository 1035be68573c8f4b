"""KV blocks whose memory goes and comes back: the toy step on the libcuda double."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.player_runner import batch, running
from support.step_tables import BLOCK

from vcc.cache.errors import DeviceError, DeviceShortage, UsageError
from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.table.types import RegionKind
from vcc.engine.models.source import open_source
from vcc.engine.runtime.defaults import Overrides
from vcc.engine.runtime.device_steps import device_steps
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.placed import scheduler_of
from vcc.engine.runtime.player.cache import AHEAD
from vcc.engine.runtime.player.runner import PlayerRunner
from vcc.engine.runtime.requests import Request
from vcc.engine.serving import Serving

BLOCKS = 1 << 17
"""8 MiB of keys and 8 MiB of values in each of two layers, in chunks of 2 MiB."""

REQUEST = Request(0, (1, 2, 3), max_new_tokens=9)
LONG = Overrides(max_new_tokens=12, ignore_eos=True)
HALF = BLOCKS // 2 - AHEAD
CHUNK = 2 << 20
ALL, ONE = 4 * (8 << 20), 4 * CHUNK
"""Bytes of all blocks, and of one: its keys and values in both layers."""


@pytest.fixture
def runner(arena: RawArena) -> Iterator[PlayerRunner]:
    with running(arena, GraphMode.FULL, blocks=BLOCKS) as found:
        yield found


def cached(arena: RawArena) -> int:
    return int(arena.stats()["tags"]["kv_cache"]["mapped"])


def test_unused_blocks_give_their_memory_back_and_get_it_again(
    arena: RawArena, runner: PlayerRunner
) -> None:
    assert cached(arena) == ALL
    assert runner.trim() == ALL - ONE
    assert cached(arena) == ONE
    assert runner.trim() == 0
    events = list(generate(runner, [REQUEST]))
    assert len(events) == 9
    assert cached(arena) == ONE, "blocks of one chunk need no other"
    assert runner.cache.mapped == 3 + AHEAD, "11 tokens take 3 blocks"


@pytest.mark.parametrize(
    "keep", [1, 2, BLOCKS // 4, BLOCKS // 4 + 1, BLOCKS - 1, BLOCKS, 2 * BLOCKS]
)
def test_what_is_kept_is_whole_chunks(arena: RawArena, runner: PlayerRunner, keep: int) -> None:
    """A quarter of the blocks fills a chunk of each part to the last byte."""
    runner.trim(keep)
    chunks = -(-min(keep, BLOCKS) // (BLOCKS // 4))
    assert cached(arena) == chunks * ONE


def test_contents_of_blocks_that_stay_are_untouched(arena: RawArena, runner: PlayerRunner) -> None:
    regions = runner.player.describe()["regions"]
    start = next(one["address"] for one in regions if one["kind"] == RegionKind.KV_CACHE)
    arena.write(start, b"\7" * CHUNK)
    runner.trim()
    runner.cache.hold(BLOCKS)
    assert arena.read(start, CHUNK) == b"\7" * CHUNK
    assert cached(arena) == ALL


def test_blocks_of_requests_under_way_stay(arena: RawArena, runner: PlayerRunner) -> None:
    scheduler = scheduler_of(runner, [Request(0, (1, 2, 3), max_new_tokens=4)])
    pool = scheduler._pool
    assert pool.allocate(BLOCKS // 2) is not None
    runner.trim()
    assert cached(arena) == ALL // 2
    del scheduler, pool
    gc.collect()
    runner.trim()
    assert cached(arena) == ONE


def test_a_step_of_ones_own_brings_memory_for_its_blocks(
    arena: RawArena, runner: PlayerRunner
) -> None:
    runner.trim()
    step = batch(3, 1)
    step.block_table[1, 0] = BLOCKS - 1
    step.slot_mapping[3] = (BLOCKS - 1) * BLOCK
    runner.step(step)
    assert cached(arena) == ALL
    assert runner.cache.mapped == BLOCKS


def test_nothing_is_trimmed_while_a_step_is_under_way(
    arena: RawArena, runner: PlayerRunner
) -> None:
    events = generate(runner, [Request(0, (1, 2), max_new_tokens=8)])
    next(events)
    next(events)
    with pytest.raises(UsageError, match="running already"):
        runner.trim()
    events.close()
    assert runner.trim() == ALL - ONE


def _mapped(arena: RawArena, hog: int, size: int) -> bool:
    try:
        arena.map_range(hog, 0, size)
    except DeviceError:
        return False
    return True


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_without_memory_nothing_changes_and_a_later_try_goes_on(
    arena: RawArena, runner: PlayerRunner, chunks: int
) -> None:
    """Four chunks are missing; those that were mapped before the shortage are given back."""
    runner.trim()
    pool = scheduler_of(runner)._pool
    hog, free = arena.reserve_range(1 << 30, CHUNK, "other"), range(1 << 30, 0, -CHUNK)
    taken = next(size for size in free if _mapped(arena, hog, size))
    arena.unmap_range(hog, taken - chunks * CHUNK, chunks * CHUNK)
    assert pool.allocate(HALF) is None
    assert (cached(arena), runner.cache.mapped) == (ONE, 1)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in runner.cache.shortage().why
    assert pool.free_blocks == BLOCKS
    arena.free_range(hog)
    assert pool.allocate(HALF) == tuple(range(HALF))
    assert cached(arena) == ALL // 2


def test_a_request_that_finds_no_memory_says_so_and_goes_on_when_there_is_some(
    fake: Fake, arena: RawArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(arena, GraphMode.FULL, blocks=BLOCKS) as runner:
        wanted = [event.token for event in generate(runner, [REQUEST])]
        runner.trim()
        monkeypatch.setattr(runner.cache, "mapped", 0)
        scheduler = scheduler_of(runner, [REQUEST])
        refused = [False, False]
        monkeypatch.setattr(runner.cache, "hold", lambda blocks: refused.pop() if refused else True)
        for _ in range(2):
            with pytest.raises(DeviceError, match="no memory for the KV cache") as told:
                next(device_steps(runner, scheduler))
            assert told.value.hint
        found = [event.token for event in device_steps(runner, scheduler)]
        assert found == wanted


def test_another_fault_of_the_device_is_no_shortage(
    fake: Fake, arena: RawArena, runner: PlayerRunner
) -> None:
    runner.trim()
    fake.fail("cuMemCreate", 1, code=1)
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_VALUE") as told:
        runner.cache.hold(BLOCKS)
    assert not isinstance(told.value, DeviceShortage)


def test_a_shortage_is_known_by_its_kind_not_by_its_words(
    runner: PlayerRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quoting(_: int) -> int:
        raise DeviceError("cannot map", "CUDA_ERROR_OUT_OF_MEMORY was said before")

    runner.trim()
    monkeypatch.setattr(runner.cache, "_map", quoting)
    with pytest.raises(DeviceError, match="was said before"):
        runner.cache.hold(BLOCKS)


def test_a_served_prompt_that_was_given_up_frees_its_blocks(runner: PlayerRunner) -> None:
    """In the middle of a run of the device; the other one gets all of its tokens."""
    serving = Serving(runner, open_source("demo"))
    gone = serving.submit([1, 2, 3], LONG)
    stays = serving.submit([4, 5], LONG)
    parts = [part for _ in range(5) for part in serving.step()]
    assert {part.number for part in parts} == {gone, stays}
    assert serving.cancel(gone)
    assert not serving.cancel(gone)
    while serving.busy:
        parts += serving.step()
        assert parts[-1].number == stays
    assert parts[-1].answer is not None
    assert len(parts[-1].answer.token_ids) == LONG.max_new_tokens
    assert serving._scheduler.free_blocks == BLOCKS
    runner.step(batch(2))  # nobody holds the runner any more
    assert runner.trim() > 0
