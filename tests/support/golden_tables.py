"""A golden that copies: the libcuda double runs no kernels, but its copies act on real bytes."""

from __future__ import annotations

import numpy as np

from vcc.engine.graphs.drawn_bytes import bf16, draw_bytes, widened
from vcc.engine.graphs.golden import Argument, Bound, Golden, draw
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import (
    READ,
    WRITE,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Region,
    RegionKind,
    Role,
    Segment,
    SegmentKind,
    TableTensor,
)

SHAPE = (5, 24)
PIECE = "c0ffee" * 10 + "abcd"


def copying(piece: str = PIECE, *, nodes: int = 1) -> Golden:
    """The golden of a piece that copies one bf16 matrix.

    Args:
        piece: its id.
        nodes: 0 for a table that computes nothing.
    """
    spec = Argument("bfloat16", SHAPE, True)
    rows, columns = SHAPE
    size = 2 * rows * columns
    copy = Node(
        NodeKind.MEMCPY,
        params=(
            Param(ParamKind.POINTER, WRITE, 0, 1, 0),
            Param(ParamKind.POINTER, READ, 8, 0, 0),
            Param(ParamKind.I64, 0, 16, value=size),
        ),
    )
    table = NodeTable(
        regions=(Region(RegionKind.WEIGHTS, 256), Region(RegionKind.IO, 512)),
        tensors=(
            TableTensor("0", "0", Role.WEIGHT, "bfloat16", 0, 0, (rows * columns,)),
            TableTensor("1", "1", Role.OUTPUT, "bfloat16", 1, 0, (rows * columns,)),
        ),
        nodes=(copy,) * nodes,
        segments=(Segment(SegmentKind.PIECE, piece[:16], nodes),) if nodes else (),
    )
    given = widened(bf16(draw(piece, 0, spec)).view(np.uint8), "bfloat16")
    assert given.tobytes() == widened(draw_bytes(piece, 0, spec, 2), "bfloat16").tobytes()
    reference = given.reshape(SHAPE)
    bound = Bound(0.0, 0.0)
    return Golden((spec, spec), 2, (reference,), (bound,), encode(table), ((columns, 1),))
