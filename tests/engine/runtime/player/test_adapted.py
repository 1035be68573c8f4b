"""Adapters on a player: which graphs leave their nodes out, the slots of rows, uploads of slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.adapters import make_adapter
from support.checkpoints import make_checkpoint
from support.decoders import spec
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.player_runner import batch, limits, running
from support.step_tables import SEQS

from vcc.cache.errors import IntegrityError, UsageError
from vcc.engine.config.modes import GraphMode
from vcc.engine.config.types import ModelConfig
from vcc.engine.models.lora.spec import LoraSpec, shapes_of
from vcc.engine.monitor import Counters
from vcc.engine.runtime.adapter_writer import empty_stacks, slot_writer
from vcc.engine.runtime.batch import StepBatch
from vcc.engine.runtime.device_steps import DecodeRow, SampleRow
from vcc.engine.runtime.player.adapters import device_adapters, stacked_names
from vcc.engine.runtime.player.layout import Tensor, WeightPlace
from vcc.engine.runtime.player.runner import PlayerRunner
from vcc.engine.runtime.player.weight_plan import Home
from vcc.engine.runtime.sample import GREEDY
from vcc.engine.runtime.turn import Turn

LORAS = 2
MODES = (GraphMode.NONE, GraphMode.PIECEWISE, GraphMode.FULL, GraphMode.FULL_AND_PIECEWISE)


def adapted(step: StepBatch, *slots: int) -> StepBatch:
    """The step with so many rows of adapters, the rest without."""
    rows = np.full(step.tokens, -1, np.int32)
    rows[: len(slots)] = slots
    return replace(step, lora_slot=rows)


def norms(fake: Fake, runner: PlayerRunner, step: StepBatch) -> int:
    fake.clear()
    runner.step(step)
    return sum(launch.name == "norm" for launch in fake.launches())


@pytest.mark.parametrize("mode", MODES)
def test_a_step_without_adapters_leaves_their_nodes_out(
    fake: Fake, arena: RawArena, mode: GraphMode
) -> None:
    with running(arena, mode, layers=1, loras=LORAS) as runner:
        for step in (batch(3), batch(1, 1, start=4)):
            without = norms(fake, runner, step)
            assert norms(fake, runner, adapted(step, -1)) == without
            assert norms(fake, runner, adapted(step, 1)) == without + 1
            assert norms(fake, runner, adapted(step, 0, 1)) == without + 1
            assert norms(fake, runner, step) == without


def test_there_are_graphs_without_adapters_and_with_any(arena: RawArena) -> None:
    """The cases of two adapters are 0, 1, 2, 3: the last three share one graph."""
    with running(arena, GraphMode.FULL_DECODE_ONLY, layers=1, loras=LORAS) as runner:
        assert runner.gate.captures == runner.player.graphs().graphs == 4 * 2
        step = batch(1, 1, 1, start=4)
        before = runner.player.stats()["graph_launches"]
        for slots in ((), (0,), (0, 1), (0, 1, 1)):
            runner.step(adapted(step, *slots))
        assert runner.player.stats()["graph_launches"] == before + 4


def test_rows_have_their_slots_and_padding_has_none(fake: Fake, arena: RawArena) -> None:
    with running(arena, GraphMode.FULL, layers=1, loras=LORAS) as runner:
        runner.step(adapted(batch(3), 1, -1, 0))
        place = runner.io["lora_slot"]
        held = runner.player.read(place.tensor.address, 4 * 4).view(np.int32)
        assert held.tolist() == [1, -1, 0, -1]
        runner.step(batch(3))
        held = runner.player.read(place.tensor.address, 4 * 4).view(np.int32)
        assert held.tolist() == [-1] * 4
        with pytest.raises(UsageError, match="lora_slot is out of range"):
            runner.step(adapted(batch(3), LORAS))


@pytest.mark.parametrize("mode", [GraphMode.NONE, GraphMode.FULL_DECODE_ONLY])
def test_decode_runs_take_the_slots_of_their_rows(
    fake: Fake, arena: RawArena, mode: GraphMode
) -> None:
    with running(arena, mode, layers=1, loras=LORAS) as runner:
        table = np.arange(4, dtype=np.int32)
        counts = []
        for slots in ((-1, -1), (1, -1), (0, 1)):
            fake.clear()
            rows = [
                DecodeRow(SampleRow(GREEDY, i, 0, 3), 4, table, frozenset(), slot)
                for i, slot in enumerate(slots)
            ]
            assert len(list(runner.decoding.run(rows, 2, 2))) == 2
            counts.append(sum(launch.name == "norm" for launch in fake.launches()))
            place = runner.io["lora_slot"].tensor.address
            held = runner.player.read(place, 8).view(np.int32)
            assert held.tolist() == list(slots)
        assert counts[1] == counts[2] == counts[0] + 2, "one more in each of two steps"


SPEC, LORA = spec("llama", 1), LoraSpec(LORAS, 8)
MODEL = ModelConfig("m", enable_lora=True, max_loras=LORAS, max_lora_rank=8)


class Memory:
    """A WEIGHTS region in the host's memory, and its tensors behind some others."""

    def __init__(self, dtype: str) -> None:
        at, tensors = 4096, []
        for name, shape in shapes_of(SPEC, LORA).items():
            tensors.append(Tensor(name, name, "weight", dtype, shape, 1000 + at, -1))
            at += tensors[-1].bytes
        self.place = WeightPlace(1000, at, tuple(tensors))
        self.data = bytearray(b"\xee" * at)

    def upload(self, homes: Sequence[Home], constants: Mapping[str, bytes]) -> None:
        for home in homes:
            assert home.constant
            data = constants[home.name]
            assert len(data) == home.bytes
            self.data[home.offset : home.offset + home.bytes] = data

    def read(self, name: str) -> torch.Tensor:
        (one,) = (tensor for tensor in self.place.tensors if tensor.name == name)
        start = one.address - 1000
        dtype = getattr(torch, one.dtype)
        return torch.frombuffer(self.data[start : start + one.bytes], dtype=dtype).view(one.shape)


def booting(**changes: Any) -> Any:
    settings = SimpleNamespace(model=replace(MODEL, **changes))
    return SimpleNamespace(
        settings=settings, source=SimpleNamespace(spec=SPEC), counters=Counters()
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_upload_writes_one_slot_as_the_cpu_has_it(dtype: str, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "base", "llama", num_hidden_layers=1)
    make_adapter(tmp_path / "one", tmp_path / "base", rank=4)
    memory, boot = Memory(dtype), booting()
    adapters = device_adapters(boot, memory.place, memory.upload, Turn())
    assert adapters is not None
    before = bytes(memory.data)
    adapters.load("other", tmp_path / "one")
    adapters.load("one", tmp_path / "one")
    stacked = empty_stacks(SPEC, LORA, getattr(torch, dtype))
    slot_writer(SPEC, LORA, stacked, Turn())(1, adapters._loaded["one"])
    for name, wanted in stacked.items():
        assert torch.equal(memory.read(name)[1], wanted[1])
        assert torch.equal(memory.read(name)[0], wanted[1])
    assert memory.data[:4096] == before[:4096]
    memory.data[:] = before
    adapters.rewrite()
    assert all(torch.equal(memory.read(name)[1], one[1]) for name, one in stacked.items())


def test_a_table_with_other_matrices_is_refused() -> None:
    memory = Memory("float32")
    with pytest.raises(IntegrityError, match="has no layers"):
        device_adapters(booting(max_lora_rank=4), memory.place, memory.upload, Turn())
    assert stacked_names(booting()) == set(shapes_of(SPEC, LORA))
    none = booting(enable_lora=False, max_loras=None, max_lora_rank=None)
    assert device_adapters(none, memory.place, memory.upload, Turn()) is None
    assert stacked_names(none) == frozenset()


def test_limits_of_the_toy_step_have_no_adapters_unless_asked() -> None:
    assert (limits().max_loras, limits(loras=2).max_loras, SEQS) == (0, 2, 8)
