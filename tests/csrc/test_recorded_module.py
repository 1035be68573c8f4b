"""A recorded module on the player, on the driver's double: a graph that copies its input."""

from __future__ import annotations

import pytest
import torch
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena

from vcc.cache.errors import UsageError
from vcc.engine.graphs.recorder.plan import IO, KINDS, Descriptor, Recording, Slot, placed
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import (
    NONE,
    READ,
    WRITE,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Region,
    Role,
    Segment,
    SegmentKind,
    Symbol,
)
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.runtime.player.layout import Layout
from vcc.engine.runtime.player.recorded import RING, SLOTS, THREADS, Recorded
from vcc.engine.runtime.recorded_module import RecordedForward

ONLY = Descriptor(1, 1, False)


@pytest.fixture(params=["float32", "bfloat16"])
def forward(fake: Fake, arena: RawArena, request: pytest.FixtureRequest):
    shape = (4, 8)
    roles = {"x": Role.INPUT, "output": Role.OUTPUT}
    io = placed(Slot(name, role, request.param, shape) for name, role in roles.items())
    recording = Recording((), (), io, (ONLY,))
    copy = (
        Param(ParamKind.POINTER, WRITE, 0, IO, io[1].offset),
        Param(ParamKind.POINTER, READ, 8, IO, io[0].offset),
        Param(ParamKind.I64, 0, 16, NONE, io[0].bytes),
    )
    table = NodeTable(
        symbols=tuple(Symbol(name, 1, 1) for name in "TBK"),
        regions=tuple(Region(k, s) for k, s in zip(KINDS, recording.sizes(0), strict=True)),
        tensors=tuple(slot.tensor(region, ONLY) for region, slot in recording.slots()),
        nodes=(Node(NodeKind.MEMCPY, params=copy),),
        segments=(Segment(SegmentKind.PIECE, "recorded", 1),),
    )
    handle = PlayerHandle(arena.handle, encode(table))
    handle.place(1, 1, SLOTS, RING)
    recorded = Recorded.parse(ONLY.blob)
    handle.build([recorded.shape], 1, THREADS)
    yield RecordedForward(handle, Layout.read(handle.describe()), recorded, None)
    handle.close()


def test_inputs_go_in_and_outputs_come_back(forward: RecordedForward) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(4, 8).to(dtype)
        try:
            found = forward({"x": x})["output_0"]
        except UsageError:
            continue
        assert torch.equal(found, x)
        assert found.dtype == dtype
        return
    pytest.fail("neither dtype was taken")


@pytest.mark.parametrize(
    "inputs",
    [{}, {"y": torch.zeros(4, 8)}, {"x": torch.zeros(8, 4)}, {"x": torch.zeros(4, 8).double()}],
    ids=["none", "name", "shape", "dtype"],
)
def test_other_inputs_are_refused(
    forward: RecordedForward, inputs: dict[str, torch.Tensor]
) -> None:
    with pytest.raises(UsageError):
        forward(inputs)
