"""Adapters by name: slots by least recent use, what is refused, and what a slot holds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.adapters import make_adapter
from support.checkpoints import make_checkpoint
from support.decoders import spec
from support.fake_runner import limits

from vcc.cache.errors import ModelError, UsageError
from vcc.engine.models.lora.adapter import open_adapter
from vcc.engine.models.lora.spec import LoraSpec, projections, shapes_of
from vcc.engine.monitor import Counters
from vcc.engine.runtime.adapter_writer import empty_stacks, slot_writer
from vcc.engine.runtime.adapters import Adapters
from vcc.engine.runtime.batch import BatchBuilder, Chunk
from vcc.engine.runtime.descriptors import count_loras
from vcc.engine.runtime.dispatch import Dispatcher, GraphMode, lora_counts
from vcc.engine.runtime.inputs import check_batch
from vcc.engine.runtime.kv import BlockPool, BlockTable
from vcc.engine.runtime.no_adapters import AdapterUnreadable
from vcc.engine.runtime.player import adapters as on_device
from vcc.engine.runtime.requests import Request
from vcc.engine.runtime.scheduler import Scheduler
from vcc.engine.runtime.turn import Turn

LORA = LoraSpec(slots=2, rank=8)
LLAMA = spec("llama", 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of rank 4 for the first layer alone."""
    home = tmp_path_factory.mktemp("adapters")
    make_checkpoint(home / "base", "llama", num_hidden_layers=2)
    return make_adapter(home / "one", home / "base", rank=4, layers=[0], seed=3)


class Slots:
    """What was written where."""

    def __init__(self) -> None:
        self.written: list[tuple[int, bool]] = []

    def __call__(self, slot: int, adapter: Any) -> None:
        self.written.append((slot, adapter is not None))


def adapters(slots: Slots, count: int = 2) -> Adapters:
    return Adapters(LLAMA, LoraSpec(count, 8), slots, Counters())


def test_slots_go_to_the_least_recently_used(folder: Path) -> None:
    slots = Slots()
    found = adapters(slots)
    for name in "abc":
        found.load(name, folder)
    assert slots.written == [(0, True), (1, True)], "the third waits for its use"
    assert found.slots_for(["a", ""]) == {"": -1, "a": 0}
    assert found.slots_for(["c"])["c"] == 1, "b was used least recently"
    assert found.slots_for(["a", "c"]) == {"": -1, "a": 0, "c": 1}
    assert found.slots_for(["b", "c"]) == {"": -1, "b": 0, "c": 1}
    assert slots.written[2:] == [(1, True), (0, True)]
    with pytest.raises(UsageError, match="cannot hold 3 adapters") as caught:
        found.slots_for("abc")
    assert "--max-loras 3" in caught.value.hint


def test_loading_and_unloading_write_one_slot_and_compile_nothing(folder: Path) -> None:
    slots, counters = Slots(), Counters()
    found = Adapters(LLAMA, LORA, slots, counters)
    with counters.expect(adapters=1, adapter_slots=2, compiles=0):
        found.load("a", folder)
        found.unload("a")
    assert slots.written == [(0, True), (0, False)]
    assert found.names == ()
    with pytest.raises(UsageError, match="no adapter called 'a'"):
        found.unload("a")


def test_an_adapter_that_cannot_be_read_has_no_slot_and_the_others_keep_theirs(
    folder: Path,
) -> None:
    gone: list[Path] = []

    def write(slot: int, adapter: Any) -> None:
        if adapter is not None and adapter.directory in gone:
            raise ModelError("the file has gone", "removed", "load it again")

    found = Adapters(LLAMA, LORA, write, Counters())
    other = shutil.copytree(folder, folder.with_name("other"))
    found.load("a", folder)
    found.load("b", other)
    gone.append(other)
    found.rewrite()
    assert found.slots_for(["a"]) == {"": -1, "a": 0}
    with pytest.raises(AdapterUnreadable, match="has gone: removed") as caught:
        found.slots_for(["a", "b"])
    assert (caught.value.name, caught.value.hint) == ("b", "load it again")
    assert found.slots_for(["a"]) == {"": -1, "a": 0}
    gone.clear()
    assert found.slots_for(["b"])["b"] == 1


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201])
def test_names_are_printable_text(folder: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name an adapter"):
        adapters(Slots()).load(name, folder)


def test_a_name_is_taken_until_it_is_unloaded(folder: Path) -> None:
    found = adapters(Slots())
    found.load("a", folder)
    with pytest.raises(UsageError, match="loaded already"):
        found.load("a", folder)


def test_an_adapter_that_is_refused_leaves_everything_as_it_was(folder: Path) -> None:
    slots = Slots()
    found = Adapters(spec("llama", 2, hidden_size=32), LORA, slots, Counters())
    with pytest.raises(ModelError, match="does not fit"):
        found.load("a", folder)
    assert (slots.written, found.names) == ([], ())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_slot_holds_the_matrices_with_their_scale(folder: Path, dtype: torch.dtype) -> None:
    """By torch for the CPU, and by numpy for a device, in equal bits."""
    stacked = empty_stacks(LLAMA, LORA, dtype)
    write = slot_writer(LLAMA, LORA, stacked, Turn())
    adapter = open_adapter(folder, projections(LLAMA, LORA), LORA)
    write(1, adapter)
    name = str(dtype).removeprefix("torch.")
    for place in projections(LLAMA, LORA):
        with adapter.weights.reading() as read:
            both = on_device.matrices(place, LORA.rank, adapter, read)
        for which, data in zip(("lora_a", "lora_b"), both, strict=True):
            mine = stacked[f"{place.parameter}.{which}"]
            assert not mine[0].any(), "the other slot is as it was"
            raw = mine[1].contiguous().view(torch.uint8).numpy().tobytes()
            assert raw == on_device.as_bytes(data, name)
            assert bool(mine[1].any()) == place.parameter.startswith("layers.0.")
    write(1, None)
    assert not any(one.any() for one in stacked.values())


def test_rounding_on_the_host_keeps_nan_and_infinity() -> None:
    values = np.array([1.0, -2.5, 3.14159, np.inf, -np.inf, np.nan, 3.4e38, 1e-40], np.float32)
    for name in ("bfloat16", "float16"):
        want = torch.from_numpy(values).to(getattr(torch, name)).view(torch.int16)
        found = torch.frombuffer(bytearray(on_device.as_bytes(values, name)), dtype=torch.int16)
        finite = torch.from_numpy(~np.isnan(values))
        assert torch.equal(found[finite], want[finite])
        assert bool(found.view(getattr(torch, name))[5].isnan())


def test_a_slot_is_not_written_while_a_step_runs(folder: Path) -> None:
    turn = Turn()
    write = slot_writer(LLAMA, LORA, empty_stacks(LLAMA, LORA, torch.float32), turn)
    with turn.taken(), pytest.raises(UsageError, match="running already"):
        write(0, None)


def test_stacked_shapes_have_rows_for_each_part() -> None:
    shapes = shapes_of(LLAMA, LORA)
    assert shapes["layers.0.attn.qkv.lora_a"] == (2, 24, 64)
    assert shapes["layers.1.mlp.gate_up.lora_b"] == (2, 192, 8)
    sparse = spec("qwen3_moe", 1)
    assert {name.split(".")[2] for name in shapes_of(sparse, LORA)} == {"attn"}


def test_rows_without_an_adapter_count_as_one_more() -> None:
    assert count_loras([0, 1, 2, -1]) == 4
    assert count_loras([0, 0]) == 1
    assert count_loras([-1, -1]) == count_loras([]) == 0


def test_three_active_take_case_four_and_six_have_no_graph() -> None:
    cases = lora_counts(4, specialise=True)
    made = Dispatcher.build(GraphMode.FULL, (1, 2), max_seqs=8, lora_cases=cases)
    assert cases == (0, 1, 2, 4, 5)
    assert len(made.keys(GraphMode.FULL)) == 10
    assert made.dispatch(2, True, loras=3).descriptor.loras == 4
    assert made.dispatch(2, True, loras=0).descriptor.loras == 0
    six = made.dispatch(2, True, loras=6)
    assert six.mode is GraphMode.NONE
    assert "6 LoRAs are above the largest case 5" in six.reason


def _chunks(*slots: int) -> list[Chunk]:
    pool, found = BlockPool(64, 4), []
    for slot in slots:
        table = BlockTable(pool, 16)
        table.append(2)
        found.append(Chunk(np.array([5, 6], np.int32), 0, table, slot))
    return found


def test_a_batch_names_the_slot_of_every_row() -> None:
    able = limits(max_loras=2)
    batch = BatchBuilder(able).build(_chunks(1, -1, 0))
    assert batch.lora_slot is not None
    assert batch.lora_slot.tolist() == [1, 1, -1, -1, 0, 0]
    assert batch.loras == 3
    check_batch(batch, able)
    assert BatchBuilder(able).build(_chunks(-1, -1)).lora_slot is None


def test_slots_out_of_range_and_for_code_without_adapters_are_refused() -> None:
    batch = BatchBuilder(limits(max_loras=2)).build(_chunks(1, 2))
    with pytest.raises(UsageError, match="lora_slot is out of range"):
        check_batch(batch, limits(max_loras=2))
    with pytest.raises(UsageError, match="compiled without adapters") as caught:
        check_batch(batch, limits())
    assert "--enable-lora" in caught.value.hint


def test_a_request_with_an_adapter_for_code_without_any_is_refused() -> None:
    with pytest.raises(UsageError, match="compiled without adapters"):
        Scheduler(limits(), [Request(0, (5, 6), lora="a")])


def test_requests_wait_until_their_adapter_fits() -> None:
    """Two slots: the third adapter's request waits, and so does what comes after it."""
    names = ("a", "b", "", "c", "a")
    requests = [Request(i, (5, 6), max_new_tokens=1, lora=n) for i, n in enumerate(names)]
    scheduler = Scheduler(limits(max_loras=2, max_seqs=8), requests)
    steps = []
    while scheduler.busy:
        step = scheduler.schedule()
        steps.append([one.sequence.request.index for one in step])
        assert scheduler.loras() >= {one.sequence.request.lora for one in step}
        for one in step:
            scheduler.commit(one, 7)
    assert steps == [[0, 1, 2], [3, 4]]
