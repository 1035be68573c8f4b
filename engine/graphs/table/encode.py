"""Write a node table: texts and expressions once each, everything else in the table's order.

What is written has passed the reader's checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from struct import error as StructError

from vcc.cache.errors import CompileError, IntegrityError
from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.table.check import check
from vcc.engine.graphs.table.frame import read_frame
from vcc.engine.graphs.table.layout import (
    ALIGNMENT,
    DTYPE_NAMES,
    ENTRY,
    HEADER,
    MAGIC,
    OPS,
    SCALES,
    SHAPES,
    VERSION,
    Op,
    Section,
)
from vcc.engine.graphs.table.types import (
    NONE,
    Gemm,
    Kernel,
    Node,
    NodeTable,
    Param,
    ParamKind,
    TableTensor,
    Variant,
)

Record = tuple[object, ...]

_UNFIT = (StructError, LookupError, ValueError, TypeError, AttributeError, RecursionError)


def encode(table: NodeTable) -> bytes:
    """The binary form of `table`; the same table always gives the same bytes.

    Raises:
        CompileError: something in it has no place in the format, or the reader would refuse it.
    """
    try:
        data = _joined(_Writer(table).sections)
        check(read_frame(data))
    except IntegrityError as error:
        raise CompileError("cannot write the node table", error.why) from error
    except _UNFIT as error:
        why = f"{type(error).__name__}: {error!s:.200}"
        raise CompileError("cannot write the node table", why) from error
    return data


class _Writer:
    """Collects the sections of one table while it is walked in the order of the format."""

    def __init__(self, table: NodeTable) -> None:
        self.sections: dict[Section, bytearray] = {section: bytearray() for section in Section}
        self._texts: dict[str, tuple[int, int]] = {}
        self._exprs: dict[Record, int] = {}
        self._cubins = {digest: index for index, (digest, _) in enumerate(table.cubins)}
        self._symbols = {symbol.name: index for index, symbol in enumerate(table.symbols)}
        self._symbols_and_regions(table)
        self._all(Section.TENSORS, map(self._tensor, table.tensors))
        self._all(Section.CUBINS, ((_digest(text), size) for text, size in table.cubins))
        self._all(Section.KERNELS, map(self._kernel, table.kernels))
        self._all(Section.NODES, map(self._node, table.nodes))
        self._gemms(table)
        self._all(Section.SEGMENTS, self._segments(table))
        self._all(
            Section.EDGES,
            ((e.source, e.target, e.type, e.source_port, e.target_port, 0) for e in table.edges),
        )

    def _symbols_and_regions(self, table: NodeTable) -> None:
        self._all(Section.SYMBOLS, ((*self._text(s.name), s.low, s.high) for s in table.symbols))
        self._all(
            Section.REGIONS,
            ((r.kind, r.index, self._expr(r.size), r.alignment) for r in table.regions),
        )

    def _gemms(self, table: NodeTable) -> None:
        self._all(
            Section.GEMMS,
            ((self._expr(g.m), g.n, g.k, *_types(g)) for g in table.gemms),
        )
        self._all(Section.VARIANTS, map(_variant, table.variants))

    def _all(self, section: Section, records: Iterable[Record]) -> None:
        for record in records:
            self._add(section, *record)

    def _add(self, section: Section, *record: object) -> int:
        """Append one record; returns its index."""
        layout, out = SHAPES[section].record, self.sections[section]
        out += layout.pack(*record)
        return len(out) // layout.size - 1

    def _count(self, section: Section) -> int:
        return len(self.sections[section]) // SHAPES[section].record.size

    def _text(self, text: str) -> tuple[int, int]:
        if text not in self._texts:
            data, out = text.encode(), self.sections[Section.STRINGS]
            self._texts[text] = (len(out), len(data))
            out += data
        return self._texts[text]

    def _expr(self, expr: Expr) -> int:
        """The index of an expression's record, after those of its operands."""
        if isinstance(expr, int):
            return self._expr_record(Op.CONST, 0, expr)
        if isinstance(expr, str):
            return self._expr_record(Op.SYMBOL, self._symbols[expr], 0)
        op, operands = OPS[expr[0]], [self._expr(part) for part in expr[1:]]
        if len(operands) < 2:
            raise ValueError(f"{expr!r:.80} has fewer than two operands")
        return reduce(lambda a, b: self._expr_record(op, a, b), operands)

    def _expr_record(self, op: Op, a: int, b: int) -> int:
        record = (op, b"", a, b)
        if record not in self._exprs:
            self._exprs[record] = self._add(Section.EXPRS, *record)
        return self._exprs[record]

    def _tensor(self, tensor: TableTensor) -> Record:
        first = self._count(Section.LISTS)
        self._all(Section.LISTS, [(self._expr(size),) for size in tensor.shape])
        names = (*self._text(tensor.name), *self._text(tensor.target))
        kinds = (tensor.role, DTYPE_NAMES.index(tensor.dtype), 0)
        return (*names, *kinds, tensor.region, self._expr(tensor.offset), first, len(tensor.shape))

    def _kernel(self, kernel: Kernel) -> Record:
        first = self._count(Section.ATTRIBUTES)
        self._all(Section.ATTRIBUTES, ((id, 0, _whole(value)) for id, value in kernel.attributes))
        launch = (*kernel.block, kernel.shared, kernel.param_bytes, first, len(kernel.attributes))
        name = self._text(kernel.function)
        return (self._cubins[kernel.cubin], *name, *launch, kernel.carveout, kernel.flags)

    def _node(self, node: Node) -> Record:
        first = self._count(Section.PARAMS)
        grid = [self._expr(size) for size in node.grid] or [NONE] * 3
        self._all(Section.PARAMS, [self._param(param) for param in node.params])
        return (node.kind, node.when, 0, node.target, *grid, first, len(node.params))

    def _param(self, param: Param) -> Record:
        size = 0
        if param.kind is ParamKind.BYTES:
            value, size = self._bytes(param.value)
        elif param.kind is ParamKind.NULL:
            value = NONE
        elif param.kind is ParamKind.F64:
            value = self._expr(_signed(param.value))
        else:
            value = self._expr(param.value)
        return (param.kind, param.access, 0, param.offset, param.region, value, size, 0)

    def _bytes(self, data: bytes) -> tuple[int, int]:
        out = self.sections[Section.BYTES]
        out += data
        return len(out) - len(data), len(data)

    def _segments(self, table: NodeTable) -> Iterator[Record]:
        first = 0
        for segment in table.segments:
            yield (segment.kind, b"", *self._text(segment.name), first, segment.nodes)
            first += segment.nodes


def _types(one: Gemm | Variant) -> Record:
    """What a product multiplies: dtype, flags, out, scales."""
    out = DTYPE_NAMES.index(one.out) if one.out else 0
    return DTYPE_NAMES.index(one.dtype), one.has_c, out, SCALES.index(one.scales)


def _variant(variant: Variant) -> Record:
    v = variant
    tiles = (v.tile_rows, v.tile_n, v.split_k)
    return (v.n, v.k, *_types(v), v.max_rows, v.kernel, *tiles, v.reduce_kernel)


def _signed(bits: int) -> int:
    """The bits of a double as the signed number that an expression record holds."""
    return bits - 2**64 if bits >= 2**63 else bits


def _digest(text: str) -> bytes:
    data = bytes.fromhex(text)
    if len(data) != 32 or data.hex() != text:
        raise ValueError(f"{text!r:.80} is no SHA-256")
    return data


def _whole(value: bytes) -> bytes:
    if len(value) != 64:
        raise ValueError(f"a launch attribute has {len(value)} bytes, not 64")
    return value


def _joined(sections: dict[Section, bytearray]) -> bytes:
    body, entries = bytearray(), bytearray()
    start = HEADER.size + ENTRY.size * len(Section)
    for section, data in sections.items():
        body += bytes(-len(body) % ALIGNMENT)
        size = SHAPES[section].record.size
        entries += ENTRY.pack(section, size, start + len(body), len(data) // size)
        body += data
    header = HEADER.pack(MAGIC, VERSION, 0, start + len(body), len(Section), 0, 0)
    return header + bytes(entries) + bytes(body)
