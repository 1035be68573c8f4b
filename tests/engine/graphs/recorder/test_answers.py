"""What a captured step gives, and what of it a replay and the eager step are compared in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.answers import Answer, Trial, check_same
from vcc.engine.graphs.recorder.parts import WHOLE, Part
from vcc.engine.graphs.recorder.plan import COMPARED, IO, Descriptor, Recording, Slot, placed
from vcc.engine.graphs.table.types import Role, SegmentKind

ONLY = Descriptor(2, 1, False)
IO_SLOTS = (
    Slot("x", Role.INPUT, "float32", (4,), ("T",)),
    Slot("y", Role.OUTPUT, "float32", (4,), ("T",)),
)
CACHE = (Slot("kv_cache_0", Role.CACHE, "float32", (2, 3, 4)),)
RECORDING = Recording((), placed(CACHE), placed(IO_SLOTS), (ONLY,))


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """In memory of the host, with streams that do nothing."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(torch.cuda, "stream", lambda one: nullcontext())
    memory = [torch.zeros(max(size, 1), dtype=torch.uint8) for size in RECORDING.sizes(0)]
    tensors = {
        slot.name: memory[region][slot.offset : slot.offset + slot.bytes]
        .view(torch.float32)
        .view(slot.shape)
        for region, slot in RECORDING.slots()
    }
    return Trial(RECORDING, memory, tensors, tmp_path)


def run(trial: Trial, graph: Callable[[], None], step: Callable[[], None]) -> None:
    def begin() -> None:
        for region in trial.memory:
            region.zero_()
        trial.tensors["x"].copy_(torch.arange(4.0))

    held: Any = SimpleNamespace(instantiate=lambda: None, replay=graph)
    trial.run(ONLY, (Part(SegmentKind.PIECE, WHOLE, held),), begin, step)


def doubled(trial: Trial, times: float = 2.0, kept: float = 1.0) -> Callable[[], None]:
    def step() -> None:
        torch.mul(trial.tensors["x"], times, out=trial.tensors["y"])
        trial.tensors["kv_cache_0"][1, 0, 0] = kept

    return step


def test_the_output_and_digests_of_the_cache_are_kept(trial: Trial) -> None:
    run(trial, doubled(trial), doubled(trial))
    output = (trial.folder / f"{ONLY.file}.out").read_bytes()
    assert output == torch.tensor([0.0, 2.0]).numpy().tobytes(), "of the two rows of this step"
    keys, values = bytes(48), torch.tensor([1.0, *[0.0] * 11]).numpy().tobytes()
    assert json.loads((trial.folder / f"{ONLY.file}.kv").read_text()) == [
        hashlib.sha256(one).hexdigest() for one in (keys, values)
    ]


def test_an_eager_step_that_gives_something_else_is_refused(trial: Trial) -> None:
    """A model that counts its calls has three captures that are the same."""
    with pytest.raises(GraphError, match=r"2\.1\.0: 2 of 8 bytes of torch's own graph differ"):
        run(trial, doubled(trial), doubled(trial, times=-2.0))
    assert not list(trial.folder.iterdir())


def test_an_eager_step_that_writes_something_else_to_the_cache_is_refused(trial: Trial) -> None:
    with pytest.raises(GraphError, match="the KV cache of torch's own graph differ"):
        run(trial, doubled(trial), doubled(trial, kept=2.0))


def test_equal_answers_pass() -> None:
    answer = Answer(b"12", ("a",))
    check_same(ONLY, answer, replace(answer))


def test_the_beginning_of_keys_and_values_of_each_layer_is_compared() -> None:
    assert RECORDING.compared_cache == ((0, 48), (48, 48))
    wide = tuple(Slot(f"kv_cache_{i}", Role.CACHE, "float32", (2, 1 << 12, 1 << 10)) for i in "ab")
    one = Recording((), placed(wide), placed(IO_SLOTS), (ONLY,))
    half, share = 4 << 22, COMPARED // 4
    assert one.compared_cache == tuple((at * half, share) for at in range(4))
    assert one.sizes(0)[IO] > 0
    assert replace(RECORDING, cache=()).compared_cache == ()
