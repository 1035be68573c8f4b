"""The layout of a recording, and the batches it is tried on."""

from __future__ import annotations

import numpy as np
import pytest

from vcc.engine.config.modes import CompileMode, GraphMode
from vcc.engine.config.types import CompilationConfig
from vcc.engine.graphs.recorder import samples
from vcc.engine.graphs.recorder.decoder_plan import decoder_recording, descriptors_of
from vcc.engine.graphs.recorder.plan import Descriptor, Recording, Slot, placed
from vcc.engine.graphs.table.types import Role
from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.source import open_source
from vcc.engine.runtime.batch import StepLimits

LIMITS = StepLimits(
    max_tokens=64,
    max_seqs=8,
    block_size=16,
    num_blocks=8 * 8,
    max_blocks_per_seq=8,
    max_model_len=128,
    vocab=512,
)
CONFIG = CompilationConfig(
    mode=CompileMode.NO_COMPILATION,
    cuda_graph_mode=GraphMode.FULL,
    capture_sizes=(1, 2, 4, 8, 64),
)


@pytest.fixture(scope="module")
def recording() -> Recording:
    spec = open_source("demo").spec
    bindings = bindings_of(spec)
    shapes = dict.fromkeys(bindings, (4, 4))
    return decoder_recording(spec, shapes, bindings, "bfloat16", LIMITS, CONFIG)


def test_a_recording_reads_back(recording: Recording) -> None:
    assert Recording.parse(recording.text()) == recording


def test_blob_names_read_back() -> None:
    one = Descriptor(8, 4, True)
    assert Descriptor.of_blob(one.blob) == one
    assert one.blob == "table/recorded.8.4.1"
    with pytest.raises(ValueError, match="unpack"):
        Descriptor.of_blob("table/step")


def test_slots_do_not_overlap_and_tied_ones_share() -> None:
    slots = placed(
        [
            Slot("a", Role.WEIGHT, "bfloat16", (3,)),
            Slot("b", Role.WEIGHT, "float32", (100,)),
            Slot("c", Role.WEIGHT, "bfloat16", (3,), shares="a"),
        ]
    )
    assert [(slot.name, slot.offset) for slot in slots] == [("a", 0), ("b", 256), ("c", 0)]


def test_full_graphs_are_recorded_the_largest_first() -> None:
    found = descriptors_of(CONFIG, 8)
    assert found[0] == Descriptor(64, 8, False)
    assert [one.tokens for one in found] == [64, 8, 4, 2, 1]


def test_inputs_take_the_sizes_of_a_step(recording: Recording) -> None:
    shapes = {slot.name: slot.shape_of(Descriptor(4, 2, False)) for slot in recording.io}
    assert shapes["input_ids"] == (4,)
    assert shapes["block_table"] == (2, 8)
    assert shapes["query_start"] == (3,)
    assert shapes["logits"] == (2, 512)


@pytest.mark.parametrize(
    "descriptor",
    [
        *(Descriptor(64, 8, False), Descriptor(8, 8, True), Descriptor(1, 1, True)),
        *(Descriptor(8, 8, False), Descriptor(2, 2, False), Descriptor(1, 1, False)),
    ],
    ids=str,
)
def test_batches_are_what_the_step_interface_allows(
    recording: Recording, descriptor: Descriptor
) -> None:
    batch = samples.batch(recording, descriptor)
    start, lens, slots = batch["query_start"], batch["seq_lens"], batch["slot_mapping"]
    assert start[0] == 0
    assert (np.diff(start) >= 0).all()
    assert start[-1] <= descriptor.tokens
    assert (slots[start[-1] :] == -1).all()
    real = slots[: start[-1]]
    assert len(set(real.tolist())) == len(real), "two rows never share a slot"
    assert real.min(initial=0) >= 0
    assert real.max(initial=0) < LIMITS.num_blocks * LIMITS.block_size
    assert (lens <= LIMITS.max_model_len).all()
    rows = np.diff(start)
    assert (lens[rows > 0] >= rows[rows > 0]).all()
    assert (batch["input_ids"] < LIMITS.vocab).all()
    if descriptor.uniform:
        assert (rows == 1).all()
    for b in range(descriptor.seqs):
        for row in range(start[b], start[b + 1]):
            position = batch["positions"][row]
            block = batch["block_table"][b, position // LIMITS.block_size]
            assert slots[row] == block * LIMITS.block_size + position % LIMITS.block_size


def test_batches_and_weights_are_the_same_in_every_process(recording: Recording) -> None:
    one, other = (samples.batch(recording, Descriptor(8, 8, True)) for _ in range(2))
    assert all((one[name] == other[name]).all() for name in one)
    assert (samples.block("bfloat16", 1) == samples.block("bfloat16", 1)).all()
    assert (samples.block("bfloat16", 1) != samples.block("bfloat16", 2)).any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_blocks_hold_ordinary_numbers(dtype: str) -> None:
    bits = samples.block(dtype, 0)
    assert bits.nbytes == samples.BLOCK
    values = bits.view({"float32": "f4", "float16": "f2", "float64": "f8"}.get(dtype, "u2"))
    if dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    assert 0.01 < np.abs(values.astype(np.float64)).mean() < 0.1
