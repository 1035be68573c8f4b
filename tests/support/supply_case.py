"""Entries of the GEMM store for the toy step, and players that are offered them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from support.fake_cuda.cubins import cubin
from support.fake_cuda.fixtures import RawArena
from support.step_tables import CUBIN, DIGEST, HIDDEN, Step, toy_step
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.layout import DTYPE_NAMES
from vcc.engine.graphs.table.types import (
    READ,
    WRITE,
    Edge,
    Kernel,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Region,
    RegionKind,
    Segment,
    SegmentKind,
    When,
)
from vcc.engine.runtime.player.gemm_calls import Offer, Supply
from vcc.engine.runtime.player.handle import PlayerHandle

STORED = cubin({"nvjet": (128,), "splitk": (8, 8, 4)})
STORED_DIGEST = hashlib.sha256(STORED).hexdigest()
SHAPE = (HIDDEN, HIDDEN, DTYPE_NAMES.index("bfloat16"), 0)
WORKSPACE = 1 << 16


def entry(rows: int, *, most: int = 0, edge: int = 0, alignment: int = 256) -> bytes:
    """A product of `rows` rows as cuBLASLt leaves it: bytes with pointers inside, then a sum."""
    sizes = (rows * HIDDEN * 2, HIDDEN * HIDDEN * 2, most or rows * HIDDEN * 2, WORKSPACE)
    operands = (0, 1, 3, 4)
    regions = tuple(
        Region(RegionKind.OPERAND, size, index, alignment)
        for index, size in zip(operands, sizes, strict=True)
    )
    first = (
        Param(ParamKind.BYTES, 0, 0, value=bytes([rows]) * 128),
        Param(ParamKind.POINTER, READ, 16, 0, 0),
        Param(ParamKind.POINTER, READ, 48, 1, 32),
        Param(ParamKind.POINTER, WRITE, 100, 3, 0),
    )
    second = (
        Param(ParamKind.POINTER, READ, 0, 3, 64),
        Param(ParamKind.POINTER, WRITE, 8, 2, 0),
        Param(ParamKind.I32, 0, 16, value=rows),
    )
    table = NodeTable(
        regions=regions,
        cubins=((STORED_DIGEST, len(STORED)),),
        kernels=(
            Kernel(STORED_DIGEST, "nvjet", (384, 1, 1), 0, 128),
            Kernel(STORED_DIGEST, "splitk", (32, 1, 1), 0, 20),
        ),
        nodes=(
            Node(NodeKind.KERNEL, When.ALWAYS, 0, (rows, 1, 1), first),
            Node(NodeKind.KERNEL, When.ALWAYS, 1, (2, 1, 1), second),
        ),
        segments=(Segment(SegmentKind.OP, "gemm", 2),),
        edges=(Edge(0, 1, edge, edge),),
    )
    return encode(table)


def supplied(
    handle: PlayerHandle, *entries: tuple[int, bytes], code: bytes = STORED
) -> tuple[int, str]:
    """Hand over the tables of offers, and their cubin."""
    supply = Supply([len(code), *(len(table) for _, table in entries)])
    supply.cubin(hashlib.sha256(code).hexdigest(), len(code), lambda view: fill(view, code))
    for offer, table in entries:
        supply.entry(offer, memoryview(table))
    return handle.supply_gemms(supply)


def fill(view: memoryview, data: bytes) -> None:
    view[:] = data


def offers(*rows: int, routes: Mapping[int, int] = {}) -> list[Offer]:
    return [Offer(one, SHAPE, routes.get(one, 0), WORKSPACE) for one in rows]


@contextmanager
def offered(
    arena: RawArena, *made: Offer, variants: bool = True, step: Step | None = None
) -> Iterator[PlayerHandle]:
    """A player that was offered entries, none of which has come."""
    handle = PlayerHandle(arena.handle, (step or toy_step(variants=variants)).data)
    try:
        handle.add_cubin(DIGEST, CUBIN)
        handle.offer_gemms(made)
        yield handle
    finally:
        handle.close()


@contextmanager
def player(
    arena: RawArena,
    *entries: tuple[int, bytes],
    variants: bool = True,
    routes: Mapping[int, int] = {},
    step: Step | None = None,
) -> Iterator[PlayerHandle]:
    """A player whose entries have all come."""
    made = offers(*(rows for rows, _ in entries), routes=routes)
    with offered(arena, *made, variants=variants, step=step) as handle:
        supplied(handle, *((offer, data) for offer, (_, data) in enumerate(entries)))
        handle.finish_gemms()
        yield handle
