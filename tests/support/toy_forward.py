"""A plain forward of one product as a node table, and its boot on the libcuda double."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support.player_boot import boot
from support.step_tables import CUBIN, DIGEST, HIDDEN, VOCAB
from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.table.encode import encode
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
    Role,
    Segment,
    SegmentKind,
    Symbol,
    TableTensor,
    Variant,
    When,
)
from vcc.engine.runtime.player.forward import PlayedForward
from vcc.engine.runtime.player.load_forward import load_module_player

WEIGHTS, IO, WORKSPACE, SCRATCH = range(4)
GEMM_BYTES = 72
"""Parameters of the product's kernel."""


def fixed_forward(rows: int) -> NodeTable:
    """y[rows, HIDDEN] = x[rows, HIDDEN] @ w."""
    return _table(rows, (rows, HIDDEN), (), rows)


def varying_forward(most: int, each: int) -> NodeTable:
    """The same of [T, each, HIDDEN], for T from one to the most."""
    symbols = (Symbol("T", 1, most),)
    return _table(["*", each, "T"], ("T", each, HIDDEN), symbols, each * most)


def _table(
    rows: Expr, shape: tuple[Expr, ...], symbols: tuple[Symbol, ...], most: int
) -> NodeTable:
    half = -(-most * HIDDEN * 2 // 256) * 256
    spots = ((0, IO, 0, READ), (8, WEIGHTS, 0, READ), (24, IO, half, WRITE))
    params = tuple(
        Param(ParamKind.POINTER, access, at, region, offset) for at, region, offset, access in spots
    )
    return NodeTable(
        symbols=symbols,
        regions=(
            Region(RegionKind.WEIGHTS, VOCAB * HIDDEN * 2),
            Region(RegionKind.IO, 2 * half),
            Region(RegionKind.WORKSPACE, 256),
            Region(RegionKind.SCRATCH, 256),
        ),
        tensors=(
            TableTensor("w", "w", Role.WEIGHT, "bfloat16", WEIGHTS, 0, (VOCAB, HIDDEN)),
            TableTensor("x", "x", Role.INPUT, "bfloat16", IO, 0, shape),
            TableTensor("y", "y", Role.OUTPUT, "bfloat16", IO, half, shape),
        ),
        cubins=((DIGEST, len(CUBIN)),),
        kernels=(Kernel(DIGEST, "gemm", (128, 1, 1), 0, GEMM_BYTES),),
        nodes=(Node(NodeKind.GEMM, When.ALWAYS, 0, (), params),),
        gemms=(Gemm(rows, HIDDEN, HIDDEN, "bfloat16"),),
        variants=(Variant(HIDDEN, HIDDEN, "bfloat16", 0, 16, 32, 1, 0, NONE),),
        segments=(Segment(SegmentKind.PIECE, "1" * 16, 1),),
    )


def played(
    weights: Path, table: NodeTable, *, unsigned: bool = True
) -> tuple[PlayedForward, list[str]]:
    """The forward of a table, and what its boot said."""
    asked = replace(boot(weights, blobs={"table/step": encode(table)}), unsigned=unsigned)
    asked.source.is_checkpoint = True  # type: ignore[misc]
    found = load_module_player(asked)
    assert isinstance(found, PlayedForward)
    return found, list(asked.events.notes)  # type: ignore[attr-defined]
