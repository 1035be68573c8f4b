"""Read a node table that came from disk."""

from __future__ import annotations

from typing import Any

from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.table.check import check
from vcc.engine.graphs.table.exprs import check_exprs
from vcc.engine.graphs.table.frame import read_frame
from vcc.engine.graphs.table.layout import DTYPE_NAMES, OPS, SCALES, Op, Section
from vcc.engine.graphs.table.types import (
    Edge,
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
from vcc.engine.graphs.table.view import View

_NAMES = {op: name for name, op in OPS.items()}


def decode(data: bytes | memoryview) -> NodeTable:
    """The table that `encode` wrote as `data`; operations have two operands each.

    Raises:
        IntegrityError: anything that `check` refuses, named by section, record and reason.
    """
    return _Reader(check(read_frame(data))).table()


def decode_products(data: bytes | memoryview) -> NodeTable:
    """The sizes, kernels and matrix products of a table alone, in a tenth of the time.

    Args:
        data: a table that the native player has taken, which has the same checks.

    Returns:
        A table without tensors, nodes and segments.

    Raises:
        IntegrityError: not a table, or its expressions are refused.
    """
    frame = read_frame(data)
    return _Reader(View(frame, check_exprs(frame))).products()


class _Reader:
    """Makes the records of a checked table into values."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._exprs: list[Expr] = []
        for record in view.records(Section.EXPRS):
            self._exprs.append(self._expr(*record))
        self._cubins = tuple((d.hex(), size) for d, size in view.records(Section.CUBINS))

    def table(self) -> NodeTable:
        """The whole table."""
        return NodeTable(
            symbols=self._all(Section.SYMBOLS, self._symbol),
            regions=self._all(Section.REGIONS, self._region),
            tensors=self._all(Section.TENSORS, self._tensor),
            cubins=self._cubins,
            kernels=self._all(Section.KERNELS, self._kernel),
            nodes=self._all(Section.NODES, self._node),
            gemms=self._all(Section.GEMMS, self._gemm),
            variants=self._all(Section.VARIANTS, _variant),
            segments=self._all(Section.SEGMENTS, self._segment),
            edges=self._all(Section.EDGES, lambda *record: Edge(*record[:5])),
        )

    def products(self) -> NodeTable:
        """What `decode_products` gives."""
        return NodeTable(
            symbols=self._all(Section.SYMBOLS, self._symbol),
            cubins=self._cubins,
            kernels=self._all(Section.KERNELS, self._kernel),
            gemms=self._all(Section.GEMMS, self._gemm),
            variants=self._all(Section.VARIANTS, _variant),
        )

    def _all(self, section: Section, make: Any) -> tuple[Any, ...]:
        return tuple(make(*record) for record in self._view.records(section))

    def _expr(self, op: int, zero: bytes, a: int, b: int) -> Expr:
        if op == Op.CONST:
            return b
        if op == Op.SYMBOL:
            return self._view.text(*self._view.records(Section.SYMBOLS)[a][:2])
        return [_NAMES[Op(op)], self._exprs[a], self._exprs[b]]

    def _text(self, offset: int, length: int) -> str:
        return self._view.text(offset, length) or ""

    def _symbol(self, offset: int, length: int, low: int, high: int) -> Symbol:
        return Symbol(self._text(offset, length), low, high)

    def _region(self, kind: int, index: int, size: int, alignment: int) -> Region:
        return Region(RegionKind(kind), self._exprs[size], index, alignment)

    def _tensor(self, *record: int) -> TableTensor:
        *texts, role, dtype, _, region, offset, first, dims = record
        shape = self._view.records(Section.LISTS)[first : first + dims]
        return TableTensor(
            name=self._text(*texts[:2]),
            target=self._text(*texts[2:]),
            role=Role(role),
            dtype=DTYPE_NAMES[dtype],
            region=region,
            offset=self._exprs[offset],
            shape=tuple(self._exprs[index] for (index,) in shape),
        )

    def _kernel(self, *record: int) -> Kernel:
        cubin, offset, length, x, y, z, shared, block, first, count, carveout, flags = record
        attributes = self._view.records(Section.ATTRIBUTES)[first : first + count]
        return Kernel(
            cubin=self._cubins[cubin][0],
            function=self._text(offset, length),
            block=(x, y, z),
            shared=shared,
            param_bytes=block,
            attributes=tuple((id, value) for id, _, value in attributes),
            carveout=carveout,
            flags=flags,
        )

    def _node(self, *record: int) -> Node:
        kind, when, _, target, *grid, first, count = record
        sizes = tuple(self._exprs[size] for size in grid) if kind == NodeKind.KERNEL else ()
        params = self._view.records(Section.PARAMS)[first : first + count]
        made = tuple(self._param(*param) for param in params)
        return Node(NodeKind(kind), When(when), target, sizes, made)

    def _param(self, *record: int) -> Param:
        kind, access, _, offset, region, value, size, _ = record
        return Param(ParamKind(kind), access, offset, region, self._value(kind, value, size))

    def _value(self, kind: int, value: int, size: int) -> Expr:
        if kind == ParamKind.NULL:
            return 0
        if kind == ParamKind.BYTES:
            return self._view.frame.data[value : value + size]
        if kind == ParamKind.F64:
            return self._exprs[value] % 2**64
        return self._exprs[value]

    def _gemm(self, m: int, n: int, k: int, dtype: int, adds: int, *scaled: int) -> Gemm:
        return Gemm(self._exprs[m], n, k, DTYPE_NAMES[dtype], bool(adds), *_scaled(*scaled))

    def _segment(self, kind: int, _: bytes, offset: int, length: int, *span: int) -> Segment:
        return Segment(SegmentKind(kind), self._text(offset, length), span[1])


def _variant(*record: Any) -> Variant:
    n, k, dtype, adds, out, scales, most_rows, kernel, rows, columns, split, reducer = record
    names = _scaled(out, scales)
    return Variant(
        n=n,
        k=k,
        dtype=DTYPE_NAMES[dtype],
        kernel=kernel,
        tile_rows=rows,
        tile_n=columns,
        split_k=split,
        max_rows=most_rows,
        reduce_kernel=reducer,
        has_c=bool(adds),
        out=names[0],
        scales=names[1],
    )


def _scaled(out: int, scales: int) -> tuple[str, str]:
    """Names of the types that only scaled products have."""
    return (DTYPE_NAMES[out] if scales else "", SCALES[scales])
