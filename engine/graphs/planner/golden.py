"""Goldens of a GPU build: a table of one call of each piece, and what it must compute.

The table launches the step's own cubins at small, fixed sizes. Arguments lie in its WEIGHTS region,
results in IO, and nothing shares memory, so that a result is seen as it was written.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

import torch
from torch.fx import GraphModule

from vcc.cache.errors import CompileError
from vcc.engine.compile.golden import Skipped, sizes_of, unchecked_golden
from vcc.engine.graphs.drawn_bytes import DRAWABLE
from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.graphs.expr import Expr, evaluate, evaluate_all
from vcc.engine.graphs.golden import Argument, Golden
from vcc.engine.graphs.planner.arithmetic import dense
from vcc.engine.graphs.planner.emit import Emitter, Places
from vcc.engine.graphs.planner.filters import as_read
from vcc.engine.graphs.planner.flat import Flat
from vcc.engine.graphs.planner.memory import Located, Memory, stacked, tensor_bytes
from vcc.engine.graphs.planner.types import Geometry, PlannedPiece
from vcc.engine.graphs.program import Call
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import (
    NONE,
    Gemm,
    Kernel,
    NodeTable,
    Region,
    RegionKind,
    Role,
    Segment,
    SegmentKind,
    TableTensor,
    Variant,
)
from vcc.engine.graphs.table.variants import variant_for
from vcc.engine.types import Piece

BUDGET = 64 << 20
"""Bytes of fp32 that the arguments of a golden may take: larger ones cost a build its seconds."""

KINDS = (RegionKind.WEIGHTS, RegionKind.IO, RegionKind.WORKSPACE)


@dataclass(frozen=True, slots=True)
class Goldens:
    """Blobs by piece; `said` has the bytes of each golden's arguments, or why there is none."""

    blobs: Mapping[str, bytes]
    said: Mapping[str, int | str]


def make_goldens(
    pieces: Sequence[Piece], planned: Mapping[str, PlannedPiece], tables: Mapping[str, NodeTable]
) -> Goldens:
    """The goldens of a build.

    Args:
        pieces: the unique ones.
        planned: their work, by id.
        tables: by piece that of a step that runs it, whose kernels compute matrix products.
    """
    blobs: dict[str, bytes] = {}
    said: dict[str, int | str] = {}
    with _one_thread():
        for piece in pieces:
            work = planned[piece.id]
            made = _golden(as_read(piece, work.turned), work, tables[piece.id])
            if isinstance(made, Skipped):
                said[piece.id] = made.reason
            else:
                blobs[piece.id], said[piece.id] = made.encode(), made.argument_bytes
    return Goldens(blobs, said)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums whose order does not depend on the number of processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _golden(piece: Piece, planned: PlannedPiece, step: NodeTable) -> Golden | Skipped:
    sizes = sizes_of(piece)
    shapes = [evaluate_all(spec.shape, sizes) for spec in piece.arguments]
    need = 4 * sum(map(prod, shapes))
    if need > BUDGET:
        return Skipped(f"its arguments would take {need >> 20} MiB, more than {BUDGET >> 20}")
    if bad := sorted({NAMES[spec.dtype] for spec in piece.arguments} - DRAWABLE):
        return Skipped(f"{bad[0]} cannot be drawn")
    with torch.device("cpu"):
        made = unchecked_golden(replace(piece, graph=_on_cpu(piece.graph)))
    if isinstance(made, Skipped):
        return made
    try:
        table, strides = _table(piece, planned, made.arguments, step)
    except CompileError as error:
        return Skipped(f"it cannot be called alone: {error.what}")
    return replace(made, table=encode(table), strides=strides)


def _on_cpu(graph: GraphModule) -> GraphModule:
    """The graph with what it makes on a device made on the CPU."""
    cpu = torch.device("cpu")
    moved = copy.deepcopy(graph)
    for node in moved.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": cpu}
        node.args = tuple(cpu if isinstance(arg, torch.device) else arg for arg in node.args)
    moved.recompile()
    return moved


def _table(
    piece: Piece, planned: PlannedPiece, arguments: Sequence[Argument], step: NodeTable
) -> tuple[NodeTable, tuple[tuple[int, ...], ...]]:
    first = len(arguments) - piece.outputs
    names = [str(index) for index in range(len(arguments))]
    values = {
        name: Located(name, Geometry(one.dtype, one.shape, dense(one.shape)))
        for name, one in zip(names, arguments, strict=True)
    }
    memories = {
        name: Memory(name, RegionKind.WEIGHTS, tensor_bytes(one.dtype, one.shape))
        for name, one in zip(names[:first], arguments, strict=False)
    }
    flat = Flat(values, memories)
    flat.piece(1, Call("piece", piece.id, [*names], names[first:]), piece, planned)
    for name in names[first:]:
        located = flat.owned(name)
        flat.memories[located.memory] = replace(flat.memories[located.memory], kind=RegionKind.IO)
    strides = tuple(evaluate_all(flat.values[n].geometry.stride, {}) for n in names[first:])
    return _emitted(piece, flat, names, step), strides


def _emitted(piece: Piece, flat: Flat, names: Sequence[str], step: NodeTable) -> NodeTable:
    places, regions = _laid_out(flat)
    emitter = Emitter(places, {}, {})
    nodes = tuple(emitter.node(node) for node in flat.nodes)
    kernels = list(emitter.kernels)
    variants = _variants(emitter.products, step, kernels)
    scratch = max((_partials(one, emitter.products) for one in variants), default=0)
    if scratch:
        regions = (*regions, Region(RegionKind.SCRATCH, scratch))
    bytes_of = dict(step.cubins)
    first = len(names) - piece.outputs
    return NodeTable(
        regions=regions,
        tensors=tuple(
            _tensor(flat, places, name, Role.OUTPUT if index >= first else Role.WEIGHT)
            for index, name in enumerate(names)
        ),
        cubins=tuple((k, bytes_of[k]) for k in dict.fromkeys(kernel.cubin for kernel in kernels)),
        kernels=tuple(kernels),
        nodes=nodes,
        gemms=emitter.products,
        variants=variants,
        segments=(Segment(SegmentKind.PIECE, piece.id[:16], len(nodes)),) if nodes else (),
    )


def _laid_out(flat: Flat) -> tuple[Places, tuple[Region, ...]]:
    offsets: dict[str, Expr] = {}
    sizes: dict[RegionKind, Expr] = {}
    for kind in KINDS:
        found, sizes[kind] = stacked([m for m in flat.memories.values() if m.kind is kind])
        offsets |= found
    kinds = [kind for kind in KINDS if sizes[kind] != 0]
    regions = tuple(Region(kind, sizes[kind]) for kind in kinds)
    return Places({k: i for i, k in enumerate(kinds)}, flat.memories, offsets), regions


def _tensor(flat: Flat, places: Places, name: str, role: Role) -> TableTensor:
    """A tensor by its memory: from its first element to its last, flat."""
    located = flat.values[name]
    geometry = located.geometry
    start = evaluate(places.offsets[located.memory], {}) + evaluate(located.offset, {})
    length = _span(geometry)
    region = places.regions[flat.memories[located.memory].kind]
    return TableTensor(name, name, role, geometry.dtype, region, start, (length,))


def _span(geometry: Geometry) -> int:
    """Elements between the first and the last, both included."""
    shape, stride = (evaluate_all(part, {}) for part in (geometry.shape, geometry.stride))
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def _variants(
    products: Sequence[Gemm], step: NodeTable, kernels: list[Kernel]
) -> tuple[Variant, ...]:
    """The step's kernels that compute these products at their rows, added to `kernels`.

    In the step's order: where two of them fit a product, the first is played there and here.
    """
    wanted = {variant_for(step, one.family, _rows(one)) for one in products}
    return tuple(
        replace(
            one,
            kernel=_index(step, one.kernel, kernels),
            reduce_kernel=_index(step, one.reduce_kernel, kernels),
        )
        for one in dict.fromkeys(step.variants)
        if one in wanted
    )


def _rows(product: Gemm) -> int:
    return evaluate(product.m, {})


def _index(step: NodeTable, kernel: int, kernels: list[Kernel]) -> int:
    if kernel == NONE:
        return NONE
    if step.kernels[kernel] not in kernels:
        kernels.append(step.kernels[kernel])
    return kernels.index(step.kernels[kernel])


def _partials(variant: Variant, products: Sequence[Gemm]) -> int:
    """Bytes of partial products."""
    if variant.split_k <= 1:
        return 0
    rows = (_rows(one) for one in products)
    fitting = (at for one, at in zip(products, rows, strict=True) if variant.fits(one.family, at))
    return 4 * variant.split_k * variant.n * max(fitting, default=0)
