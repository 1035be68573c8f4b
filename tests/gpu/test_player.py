"""The player on a device: graphs bitwise plain launches, replays without drift, the decode loop."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcc.engine.arena import Arena
from vcc.engine.loading import Model, load
from vcc.engine.runtime.batch import BatchBuilder, Chunk, StepBatch
from vcc.engine.runtime.device_steps import SampleRow
from vcc.engine.runtime.generate import _steps, generate
from vcc.engine.runtime.kv import BlockPool, BlockTable
from vcc.engine.runtime.player.device import open_device
from vcc.engine.runtime.player.handle import Inputs, Mode, Parts, Read, Shape
from vcc.engine.runtime.player.runner import PlayerRunner
from vcc.engine.runtime.player.sampling import write_sampling
from vcc.engine.runtime.requests import Request
from vcc.engine.runtime.sample import SamplingParams
from vcc.engine.runtime.scheduler import Scheduler

pytestmark = pytest.mark.gpu

SEQS, TOKENS, LENGTH = 16, 256, 64
REPEATS = 10_000
ODD = 3 << 20
GAP_US = 20
LEAK = 16 << 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step left behind, as bytes; tokens only of a step that chose some."""

    logits: bytes
    tokens: bytes
    caches: bytes


def booted(store: Path) -> Model:
    return load(
        "demo",
        target=open_device().arch,
        cache_dir=store,
        dtype="bf16",
        max_model_len=LENGTH,
        max_num_seqs=SEQS,
        max_num_batched_tokens=TOKENS,
        compilation={"cuda_graph_mode": "full_and_piecewise"},
        lengths=[LENGTH] * SEQS,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("player") / "store")


@pytest.fixture(scope="module")
def runner(store: Path) -> Iterator[PlayerRunner]:
    made = booted(store).runner
    assert isinstance(made, PlayerRunner)
    counts = made.wait_graphs()
    assert (counts.failed, counts.ready) == (0, counts.wanted), counts.failure
    yield made
    made.close()


def batch(runner: PlayerRunner, shape: Shape) -> StepBatch:
    """A step of exactly this shape: its tokens shared out among its sequences."""
    pool = BlockPool(runner.limits.num_blocks, runner.limits.block_size)
    rng, chunks = np.random.default_rng(0), []
    for index in range(shape.seqs):
        share = shape.tokens // shape.seqs + (index < shape.tokens % shape.seqs)
        start = 0 if share > 1 else index % 7
        table = BlockTable(pool, runner.limits.max_blocks_per_seq)
        assert table.append(start + share)
        ids = rng.integers(1, 2000, share).astype(np.int32)
        chunks.append(Chunk(ids, start, table))
    return BatchBuilder(runner.limits).build(chunks)


def caches(runner: PlayerRunner) -> list[Any]:
    tensors = runner._parts.layout.tensors.values()
    return [one for one in tensors if one.role == "cache"]


def outcome(runner: PlayerRunner, shape: Shape, step: StepBatch) -> Outcome:
    """Run a step of exactly this shape over zeroed caches."""
    player, layout = runner.player, runner._parts.layout
    for cache in caches(runner):
        player.write(cache.address, np.zeros(cache.bytes, np.uint8))
    slot = player.slot()
    runner._inputs[runner.player][slot].write(step, shape.tokens, shape.seqs)
    rows = [SampleRow(SamplingParams(0.8, 20, 0.9, 7), i, 0) for i in range(shape.seqs)]
    write_sampling(layout, slot, rows, shape.seqs)
    inputs, read = Inputs.STEP | Inputs.SAMPLING, Read.LOGITS
    address = player.step(shape, shape.seqs, slot, inputs, read)
    logits = runner._logits.rows_at(address, shape.seqs).tobytes()
    token, tokens = layout.tensor("token"), b""
    if Parts.SAMPLE in shape.parts:
        tokens = player.read(token.address, 4 * shape.seqs).tobytes()
    kept = b"".join(player.read(one.address, one.bytes).tobytes() for one in caches(runner))
    return Outcome(logits, tokens, kept)


def shapes(runner: PlayerRunner) -> list[Shape]:
    wanted, _ = runner._parts.shapes.graphs(0)
    return list(wanted)


def test_graphs_are_bitwise_what_plain_launches_give_for_every_descriptor(
    runner: PlayerRunner,
) -> None:
    assert len(shapes(runner)) >= 10
    for shape in shapes(runner):
        plain = Shape(Mode.PLAIN, shape.tokens, shape.seqs, shape.parts)
        step = batch(runner, shape)
        before = runner.player.stats()["graph_launches"]
        found = outcome(runner, shape, step)
        assert runner.player.stats()["graph_launches"] > before, shape
        assert found == outcome(runner, plain, step), shape


def test_another_place_in_memory_changes_nothing(runner: PlayerRunner, store: Path) -> None:
    with Arena() as arena:
        arena.allocate(ODD, "weights")
        other = booted(store).runner
        assert isinstance(other, PlayerRunner)
        other.wait_graphs()
        mine, theirs = runner._parts.layout.tensors, other._parts.layout.tensors
        assert mine["logits"].address != theirs["logits"].address
        for shape in shapes(runner):
            step = batch(runner, shape)
            assert outcome(other, shape, step) == outcome(runner, shape, step), shape
        other.close()


def test_ten_thousand_replays_neither_drift_nor_grow(runner: PlayerRunner) -> None:
    shape = next(one for one in shapes(runner) if one.mode is Mode.FULL and one.tokens >= 4)
    step = batch(runner, shape)
    slot = runner.player.slot()
    runner._inputs[runner.player][slot].write(step, shape.tokens, shape.seqs)

    def logits() -> bytes:
        address = runner.player.step(shape, shape.seqs, slot, Inputs.STEP, Read.LOGITS)
        return runner._logits.rows_at(address, shape.seqs).tobytes()

    def replays() -> int:
        """Bytes of device memory that went meanwhile."""
        free = open_device().free_memory
        for _ in range(REPEATS):
            runner.player.step(shape, shape.seqs, slot, Inputs.NONE, Read.NOTHING)
        return free - open_device().free_memory

    first = logits()
    held, resident = runner.arena.stats, _resident()
    lost = replays()
    assert logits() == first
    assert runner.arena.stats == held
    assert _resident() - resident < 8 << 20
    # The device may have other users, who take memory now and then; a leak takes it every time.
    assert lost < LEAK or replays() < LEAK or replays() < LEAK


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


PARAMS = (
    SamplingParams(),
    SamplingParams(0.7, 0, 1.0, 1),
    SamplingParams(1.0, 40, 0.95, 2**63 + 5),
    SamplingParams(1.3, 0, 0.8, 3),
)


def test_the_device_chooses_the_tokens_that_the_host_would(runner: PlayerRunner) -> None:
    """The same requests once by the decode loop, once step by step with the host's sampling."""
    requests = [
        Request(i, tuple(range(3 + i, 12 + 2 * i)), PARAMS[i % len(PARAMS)], 24) for i in range(6)
    ]
    by_device = _answers(generate(runner, requests))
    by_host = _answers(_steps(runner, Scheduler(runner.limits, requests)))
    assert by_device == by_host


def _answers(events: Iterator[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for event in events:
        found.setdefault(event.request, []).append(event.token)
    return found


def test_a_host_gap_is_small(runner: PlayerRunner) -> None:
    runner.decoding.gaps.clear()
    list(generate(runner, [Request(0, (5, 6, 7), max_new_tokens=LENGTH - 4)]))
    gaps = sorted(runner.decoding.gaps)
    assert len(gaps) > 20
    assert gaps[len(gaps) // 2] <= GAP_US * 1000


def test_sleep_and_wake_leave_answers_as_they_were(runner: PlayerRunner) -> None:
    request = [Request(0, (5, 6, 7), max_new_tokens=12)]
    before = _answers(generate(runner, request))
    runner.arena.sleep()
    runner.arena.wake()
    assert _answers(generate(runner, request)) == before


def test_memory_of_unused_blocks_goes_to_others_and_comes_back(store: Path) -> None:
    """A cache of 512 MiB, two chunks for the keys of a layer, of which one block is in use."""
    sizes = {"max_num_seqs": 1024, "max_model_len": 512, "max_num_batched_tokens": 1024}
    shapes = {"cuda_graph_mode": "full", "capture_sizes": [1, 2]}
    said = {"target": open_device().arch, "dtype": "bf16", "compilation": shapes}
    model = load("demo", cache_dir=store, lengths=[512] * 1024, **said, **sizes)
    made, requests = model.runner, [Request(0, (5, 6, 7), max_new_tokens=40)]
    assert isinstance(made, PlayerRunner)
    before, mapped = _answers(generate(made, requests)), made.arena.stats.tags["kv_cache"].mapped
    free = made.arena.available()
    given = model.trim()
    assert mapped == 512 << 20
    assert given == mapped // 2
    assert made.arena.stats.tags["kv_cache"].mapped == mapped - given
    assert made.arena.available() >= free + given - (64 << 20)  # others use the device too
    assert _answers(generate(made, requests)) == before
    assert made.cache.hold(made.limits.num_blocks)
    assert made.arena.stats.tags["kv_cache"].mapped == mapped
    assert _answers(generate(made, requests)) == before
    made.close()


def test_other_programs_see_the_buffers_without_a_copy(runner: PlayerRunner) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    logits = torch.from_dlpack(runner.io["logits"])
    assert logits.data_ptr() == runner.io["logits"].tensor.address
    assert logits.dtype is torch.bfloat16
    found = runner.step(batch(runner, Shape(Mode.PLAIN, 3, 3, Parts.NONE)))
    assert np.array_equal(logits[:3].float().cpu().numpy(), found)
