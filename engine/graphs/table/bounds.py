"""Check at given sizes that nothing a table names lies outside its region."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vcc.engine.graphs.table.frame import refuse
from vcc.engine.graphs.table.layout import (
    DTYPE_NAMES,
    DTYPES,
    MOST_INT,
    SCALE_BLOCK,
    SCALES,
    Section,
)
from vcc.engine.graphs.table.types import NodeKind, ParamKind
from vcc.engine.graphs.table.view import Record, View

ITEM_SIZES = tuple(DTYPES[name] for name in DTYPE_NAMES)

Values = Sequence[int]


def check_bounds(view: View, values: Values) -> None:
    """Refuse a tensor, pointer, fill, copy or matrix operand that ends behind its region.

    Args:
        view: a table whose records have passed.
        values: of every expression at the sizes in question.

    Raises:
        IntegrityError: naming the section and record.
    """
    sizes = [values[region[2]] for region in view.records(Section.REGIONS)]
    for index, tensor in enumerate(view.records(Section.TENSORS)):
        _check_tensor(view, index, tensor, sizes[tensor[7]], values)
    for index, param in enumerate(view.records(Section.PARAMS)):
        if param[0] == ParamKind.POINTER and values[param[5]] > sizes[param[4]]:
            refuse(Section.PARAMS, index, "points outside its region")
    for index, node in enumerate(view.records(Section.NODES)):
        if node[0] in _EXTENTS:
            _check_node(view, index, node, sizes, values)


def _check_tensor(view: View, index: int, tensor: Record, size: int, values: Values) -> None:
    dtype, (offset, first, dims) = tensor[5], tensor[8:]
    length = ITEM_SIZES[dtype]
    for (dim,) in view.records(Section.LISTS)[first : first + dims]:
        length *= values[dim]
        if length > MOST_INT:
            refuse(Section.TENSORS, index, "beyond 63 bits")
    if values[offset] + length > size:
        refuse(Section.TENSORS, index, "ends outside its region")
    if values[offset] % ITEM_SIZES[dtype]:
        refuse(Section.TENSORS, index, "not at a multiple of its element's size")


def _check_node(view: View, index: int, node: Record, sizes: Sequence[int], values: Values) -> None:
    first, count = node[7:]
    params = view.records(Section.PARAMS)[first : first + count]
    lengths = _EXTENTS[node[0]](view, node, params, values)
    pointers = [param for param in params if param[0] == ParamKind.POINTER]
    for param, length in zip(pointers, lengths, strict=True):
        if values[param[5]] + length > sizes[param[4]]:
            refuse(Section.NODES, index, "reads or writes outside a region")


def _gemm(view: View, node: Record, params: Sequence[Record], values: Values) -> list[int]:
    rows, n, k, dtype, adds, out, scales = view.records(Section.GEMMS)[node[3]]
    m, item = values[rows], ITEM_SIZES[dtype]
    row = n * ITEM_SIZES[out if scales else dtype]
    lengths = [m * k * item, n * k * item]
    if adds:
        lengths.append(row if scales else m * row)
    return [*lengths, m * row, *scale_bytes(SCALES[scales], m, n, k)]


def scale_bytes(scales: str, m: int, n: int, k: int) -> tuple[int, ...]:
    """Bytes of the scales of a and of w; none without scales."""
    across, down = -(-k // SCALE_BLOCK), -(-n // SCALE_BLOCK)
    counts = {
        "tensor": (1, 1),
        "rows": (m, n),
        "blocks": (m * across, down * across),
        "mixed": (1, n),
    }
    return tuple(4 * count for count in counts.get(scales, ()))


def _memset(view: View, node: Record, params: Sequence[Record], values: Values) -> list[int]:
    item, width, height, pitch = (values[param[5]] for param in params[2:])
    if height > 1 and pitch < width * item:
        refuse(Section.PARAMS, node[7] + 5, "rows overlap")
    empty = width == 0 or height == 0
    return [0 if empty else (height - 1) * pitch + width * item]


def _memcpy(view: View, node: Record, params: Sequence[Record], values: Values) -> list[int]:
    return [values[params[2][5]]] * 2


_EXTENTS: Mapping[int, Callable[[View, Record, Sequence[Record], Values], list[int]]] = {
    NodeKind.GEMM: _gemm,
    NodeKind.MEMSET: _memset,
    NodeKind.MEMCPY: _memcpy,
}
"""Bytes behind each pointer of a node whose reach is known."""
