"""Check what runs: nodes with their parameters, matrix products, segments and edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vcc.engine.graphs.table.layout import (
    DTYPE_NAMES,
    FIXED_PARAM_BYTES,
    FP8,
    GEMM_PARAM_BYTES,
    MOST_PARAMS,
    OUTS,
    REDUCE_PARAM_BYTES,
    SCALES,
    VARIANT_PARAM_BYTES,
    Section,
)
from vcc.engine.graphs.table.types import (
    NONE,
    READ,
    WRITE,
    NodeKind,
    ParamKind,
    SegmentKind,
    When,
)
from vcc.engine.graphs.table.view import Need, Record, View

Field = tuple[int, int, int]
"""Kind, access and offset of a parameter."""

_READ, _WRITE = (ParamKind.POINTER, READ), (ParamKind.POINTER, WRITE)
_I32, _I64 = (ParamKind.I32, 0), (ParamKind.I64, 0)

_ADDEND = (*_READ, 16)
_SCALES = ((*_READ, 32), (*_READ, 40))

FIELDS: Mapping[int, tuple[Field, ...]] = {
    NodeKind.MEMSET: (
        *((*_WRITE, 0), (*_I32, 8), (*_I32, 12)),
        *((*_I64, 16), (*_I64, 24), (*_I64, 32)),
    ),
    NodeKind.MEMCPY: ((*_WRITE, 0), (*_READ, 8), (*_I64, 16)),
    NodeKind.EMPTY: (),
}
"""Parameters of nodes that are neither kernels nor matrix products."""

BLOCKS = dict.fromkeys(FIELDS, FIXED_PARAM_BYTES) | {NodeKind.GEMM: GEMM_PARAM_BYTES}
"""Bytes of the parameters of nodes that are no kernels."""

WIDTHS = {ParamKind.I32: 4, ParamKind.F32: 4}
"""Bytes that a parameter writes where it is not 8; BYTES say it themselves."""


def _gemm(view: View, record: Record, need: Need) -> None:
    m, n, k, *types = record
    need(view.exprs.usable(m), "its rows are no expression")
    need(n >= 1 and k >= 1, "it has no columns, or sums nothing")
    need(_has_types(*types), "unknown dtype or flags")


def _has_types(dtype: int, flags: int, out: int, scales: int) -> bool:
    """Whether a product multiplies values of one type, or fp8 with scales into a wider type."""
    if dtype >= len(DTYPE_NAMES) or flags > 1 or scales >= len(SCALES):
        return False
    if not scales:
        return out == 0
    return DTYPE_NAMES[dtype] == FP8 and out < len(DTYPE_NAMES) and DTYPE_NAMES[out] in OUTS


def _node(view: View, record: Record, need: Need) -> None:
    kind, when, zero, target, *grid, first, count = record
    need(kind < len(NodeKind) and when < len(When) and not zero, "unknown kind or when")
    has_grid = kind == NodeKind.KERNEL
    targets = {NodeKind.KERNEL: Section.KERNELS, NodeKind.GEMM: Section.GEMMS}
    known = target == NONE if kind not in targets else target < len(view.records(targets[kind]))
    need(known, "no such target")
    need(all(view.exprs.usable(i) if has_grid else i == NONE for i in grid), "no such grid")
    follows = view.follows(Section.PARAMS, first, count)
    need(follows and count <= MOST_PARAMS, "its parameters are not the next ones, or too many")
    params = view.records(Section.PARAMS)[first : first + count]
    need(len(params) == count, "more parameters than there are")
    size = view.records(Section.KERNELS)[target][7] if has_grid else BLOCKS[kind]
    for index, param in enumerate(params, first):
        _param(view, param, size, view.need(Section.PARAMS, index))
    if not has_grid:
        need(_fields(params) == _wanted(view, kind, target), "not its parameters")
    if kind == NodeKind.MEMSET:
        need(view.exprs.constant(params[2][5]) in (1, 2, 4), "no such element size")


def _wanted(view: View, kind: int, target: int) -> tuple[Field, ...]:
    """The parameters of a node that is no kernel."""
    if kind != NodeKind.GEMM:
        return FIELDS[kind]
    *_, flags, _, scales = view.records(Section.GEMMS)[target]
    addend, scaled = ((_ADDEND,) if flags else ()), (_SCALES if scales else ())
    return ((*_READ, 0), (*_READ, 8), *addend, (*_WRITE, 24), *scaled)


def _fields(params: list[Record]) -> tuple[Field, ...]:
    return tuple((param[0], param[1], param[3]) for param in params)


def _param(view: View, record: Record, block: int, need: Need) -> None:
    kind, access, zero, offset, region, _, size, last = record
    need(kind < len(ParamKind) and not zero and not last, "unknown kind")
    pointer = kind == ParamKind.POINTER
    need(1 <= access <= READ | WRITE if pointer else access == 0, "unknown access")
    known = region < view.frame.count(Section.REGIONS) if pointer else region == NONE
    need(known, "no such region")
    need(size >= 1 if kind == ParamKind.BYTES else size == 0, "no such size")
    width = size if kind == ParamKind.BYTES else WIDTHS.get(kind, 8)
    need(offset + width <= block, "outside the parameter block")
    need(_VALUES[kind](view, record), "no such value")


def _usable(view: View, record: Record) -> bool:
    return view.exprs.usable(record[5])


def _bits32(view: View, record: Record) -> bool:
    bits = view.exprs.constant(record[5])
    return bits is not None and 0 <= bits < 2**32


_VALUES: Mapping[int, Callable[[View, Record], bool]] = {
    ParamKind.POINTER: _usable,
    ParamKind.I32: _usable,
    ParamKind.I64: _usable,
    ParamKind.NULL: lambda view, record: record[5] == NONE,
    ParamKind.BYTES: lambda view, record: view.follows(Section.BYTES, record[5], record[6]),
    ParamKind.F32: _bits32,
    ParamKind.F64: lambda view, record: view.exprs.constant(record[5]) is not None,
}


def _variant(view: View, record: Record, need: Need) -> None:
    n, _, *types, _, kernel, rows, columns, split, reducer = record
    need(_has_types(*types), "unknown dtype or flags")
    need(min(n, rows, columns, split) >= 1, "a size is zero")
    need(_launches(view, kernel, VARIANT_PARAM_BYTES), "no such kernel, or other parameters")
    need(split == 1 or not types[3], "splits a scaled product")
    blocks = SCALES[types[3]] == "blocks"  # whose second kernel spreads scales, where there is one
    there = _launches(view, reducer, REDUCE_PARAM_BYTES)
    right = there if split > 1 else reducer == NONE or (blocks and there)
    need(right, "no such second kernel, or other parameters, or nothing to reduce or spread")


def _launches(view: View, kernel: int, block: int) -> bool:
    kernels = view.records(Section.KERNELS)
    return bool(kernel < len(kernels) and kernels[kernel][7] == block)


def _segment(view: View, record: Record, need: Need) -> None:
    kind, zero, offset, length, first, count = record
    need(kind < len(SegmentKind) and not any(zero), "unknown kind")
    need(view.text(offset, length) is not None, "its name is no text")
    need(view.follows(Section.NODES, first, count), "its nodes are not the next ones")
    need(kind != SegmentKind.ADVANCE or first == 0, "advances after other nodes")
    last = first + count == view.frame.count(Section.NODES)
    need(kind != SegmentKind.SAMPLE or last, "samples before other nodes")


def _edge(view: View, record: Record, need: Need) -> None:
    source, target, kind, source_port, target_port, zero = record
    nodes = view.records(Section.NODES)
    need(source < target < len(nodes), "does not lead to a later node")
    need(kind <= 1 and source_port <= 2 and target_port <= 2 and not zero, "unknown type or port")
    need(nodes[source][1] == nodes[target][1] == When.ALWAYS, "joins a node that may be left out")
    need(view.rises((source, target)), "not in ascending order")


Rule = Callable[[View, Record, Need], None]

NODE_RULES: Mapping[Section, Rule] = {
    Section.GEMMS: _gemm,
    Section.NODES: _node,
    Section.VARIANTS: _variant,
    Section.SEGMENTS: _segment,
    Section.EDGES: _edge,
}
