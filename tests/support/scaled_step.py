"""The toy step with a product of fp8 values, and an entry of the GEMM store for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from support.fake_cuda.cubins import cubin
from support.fake_cuda.fixtures import RawArena
from support.step_tables import (
    CUBIN,
    DIGEST,
    HIDDEN,
    WEIGHTS,
    WORKSPACE,
    Step,
    toy_step,
    with_table,
)
from support.supply_case import STORED, STORED_DIGEST, supplied
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.layout import DTYPE_NAMES, FP8, SCALES
from vcc.engine.graphs.table.types import (
    NONE,
    READ,
    WRITE,
    Gemm,
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
    Variant,
    When,
)
from vcc.engine.runtime.player.gemm_calls import Offer
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.tune.record import operand_sizes
from vcc.engine.tune.shapes import GemmShape

OWN = cubin({"scaled_linear": (8,) * 6 + (4,) + (8,) * 2, "spread_scales": (8, 8, 4, 4, 4, 8, 8)})
OWN_DIGEST = hashlib.sha256(OWN).hexdigest()
FEW = 4
PLACES = {0: (WORKSPACE, 0), 8: (WEIGHTS, 0), 16: (WEIGHTS, 512), 24: (WORKSPACE, 8192)}
"""Region and byte of a, w, c and d; scales of a and w lie at 4096 of the workspace and 768."""


def scaled_step(
    scales: str,
    *,
    has_c: bool = False,
    variants: bool = True,
    spreads: bool = True,
    depth: int = HIDDEN,
) -> Step:
    """The toy step whose first product is one of fp8 into bf16; `spreads`: scales of blocks.

    `depth` is what the product sums over; its memory is as large, and its a and d overlap.
    """
    step = toy_step()
    places = {**PLACES, 32: (WORKSPACE, 4096), 40: (WEIGHTS, 768)}
    params = tuple(
        Param(ParamKind.POINTER, WRITE if at == 24 else READ, at, region, place)
        for at, (region, place) in places.items()
        if at != 16 or has_c
    )
    gemm = Gemm("T", HIDDEN, depth, FP8, has_c, "bfloat16", scales)
    count = len(step.table.kernels)
    ways = ((FEW, FEW, 8), (0, 16, 4))
    spread = count + 1 if scales == "blocks" and spreads else NONE
    own = tuple(
        Variant(
            *(HIDDEN, depth, FP8, count, rows, columns),
            max_rows=most,
            has_c=has_c,
            out="bfloat16",
            scales=scales,
            reduce_kernel=spread,
        )
        for most, rows, columns in ways
    )
    nodes = [
        Node(NodeKind.GEMM, When.ALWAYS, 0, (), params)
        if one.kind is NodeKind.GEMM and one.target == 0
        else one
        for one in step.table.nodes
    ]
    return with_table(
        step,
        nodes=tuple(nodes),
        regions=tuple(
            replace(one, size=one.size * (depth // HIDDEN))
            if index in (WEIGHTS, WORKSPACE)
            else one
            for index, one in enumerate(step.table.regions)
        ),
        gemms=(gemm, *step.table.gemms[1:]),
        kernels=(
            *step.table.kernels,
            Kernel(OWN_DIGEST, "scaled_linear", (256, 1, 1), 0, 72),
            *([Kernel(OWN_DIGEST, "spread_scales", (128, 1, 1), 0, 48)] if spread != NONE else []),
        ),
        cubins=(*step.table.cubins, (OWN_DIGEST, len(OWN))),
        variants=(*step.table.variants, *(own if variants else ())),
    )


def scaled_entry(
    rows: int,
    scales: str,
    *,
    has_c: bool = False,
    most: int = 0,
    workspace: int = 0,
    depth: int = HIDDEN,
) -> bytes:
    """The product of `rows` rows as cuBLASLt leaves it, with pointers to its scales."""
    shape = GemmShape(rows, HIDDEN, depth, FP8, has_c, "bfloat16", scales)
    sizes = dict(enumerate(operand_sizes(shape, workspace)))
    sizes[5] = most or sizes[5]
    used = [index for index, size in sizes.items() if size]
    params = tuple(
        Param(ParamKind.POINTER, WRITE if index == 3 else READ, 8 * at, at, 0)
        for at, index in enumerate(used)
    )
    return encode(
        NodeTable(
            regions=tuple(Region(RegionKind.OPERAND, sizes[i], i) for i in used),
            cubins=((STORED_DIGEST, len(STORED)),),
            kernels=(Kernel(STORED_DIGEST, "nvjet", (384, 1, 1), 0, 128),),
            nodes=(Node(NodeKind.KERNEL, When.ALWAYS, 0, (rows, 1, 1), params),),
            segments=(Segment(SegmentKind.OP, "gemm", 1),),
        )
    )


def scaled_offer(
    rows: int,
    scales: str,
    *,
    has_c: bool = False,
    route: int = 0,
    workspace: int = 0,
    depth: int = HIDDEN,
) -> Offer:
    """What the store says of that entry."""
    shape = (HIDDEN, depth, DTYPE_NAMES.index(FP8), int(has_c))
    return Offer(
        rows, shape, route, workspace, (DTYPE_NAMES.index("bfloat16"), SCALES.index(scales))
    )


@contextmanager
def scaled_player(
    arena: RawArena, step: Step, offers: list[Offer], *entries: bytes
) -> Iterator[PlayerHandle]:
    """A placed player with the entries of these offers."""
    handle = PlayerHandle(arena.handle, step.data)
    try:
        handle.add_cubin(DIGEST, CUBIN)
        handle.add_cubin(OWN_DIGEST, OWN)
        handle.offer_gemms(offers)
        told = [supplied(handle, (number, data)) for number, data in enumerate(entries)]
        assert all(refused == "" for _, refused in told), told
        handle.finish_gemms()
        handle.place(4, 4, 1, 1)
        yield handle
    finally:
        handle.close()
