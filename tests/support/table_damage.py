"""Damaged node tables, each wrong in one field of one record, and the reason to refuse it."""

from __future__ import annotations

from functools import cache
from typing import Any

from support.tables import every_kind, recorded
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.layout import ENTRY, HEADER, SHAPES, Section
from vcc.engine.graphs.table.types import NONE

S = Section


@cache
def whole(graph: bool = False) -> bytes:
    """The table of every kind, or the recorded one with edges."""
    return encode(recorded() if graph else every_kind())


def patched(data: bytes, section: Section, record: int, field: int, value: Any) -> bytes:
    """`data` with one field of one record changed."""
    changed, layout = bytearray(data), SHAPES[section].record
    _, _, offset, count = ENTRY.unpack_from(data, HEADER.size + ENTRY.size * section)
    at = offset + layout.size * (record % count)
    fields = list(layout.unpack_from(data, at))
    fields[field] = value
    layout.pack_into(changed, at, *fields)
    return bytes(changed)


Damage = tuple[Section, int, int, Any, str]
"""Section, record, field, its new value, and a part of the reason."""

DAMAGES: tuple[Damage, ...] = (
    (S.SYMBOLS, 0, 1, 0, "no name of its own"),
    (S.SYMBOLS, 1, 0, 0, "no name of its own"),
    (S.SYMBOLS, 0, 1, 600, "no name of its own"),
    (S.SYMBOLS, 0, 2, -1, "empty range"),
    (S.SYMBOLS, 0, 2, 600, "empty range"),
    (S.SYMBOLS, 0, 3, 2**53, "beyond 53 bits"),
    (S.EXPRS, 0, 0, 9, "unknown operation 9"),
    (S.EXPRS, 0, 1, b"\0\0\1", "must be zero"),
    (S.EXPRS, 0, 2, 1, "must be zero"),
    (S.EXPRS, 1, 2, 3, "names no symbol"),
    (S.EXPRS, 1, 3, 1, "names no symbol"),
    (S.EXPRS, 3, 2, 3, "does not come before"),
    (S.EXPRS, 3, 3, -1, "does not come before"),
    (S.EXPRS, 3, 3, 2**32, "does not come before"),
    (S.EXPRS, 2, 3, -5, "an operand is negative"),
    (S.EXPRS, 6, 0, 4, "divides by something other"),
    (S.EXPRS, 2, 3, 2**62, "beyond 63 bits"),
    (S.REGIONS, 0, 0, 7, "unknown kind"),
    (S.REGIONS, 0, 1, 1, "no such index"),
    (S.REGIONS, 1, 0, 0, "the same region again"),
    (S.REGIONS, 0, 2, NONE, "size is no expression"),
    (S.REGIONS, 0, 3, 0, "alignment"),
    (S.REGIONS, 0, 3, 96, "alignment"),
    (S.REGIONS, 0, 3, 1 << 22, "alignment"),
    (S.LISTS, 0, 0, NONE, "no expression"),
    (S.TENSORS, 0, 1, 0, "no name of its own"),
    (S.TENSORS, 0, 2, NONE, "target is no text"),
    (S.TENSORS, 0, 4, 6, "unknown role"),
    (S.TENSORS, 0, 5, 12, "unknown role or dtype"),
    (S.TENSORS, 0, 6, 1, "unknown role"),
    (S.TENSORS, 0, 7, 5, "no such region"),
    (S.TENSORS, 0, 8, NONE, "offset is no expression"),
    (S.TENSORS, 0, 9, 1, "dimensions are not the next"),
    (S.TENSORS, -1, 10, 17, "too many"),
    (S.TENSORS, -1, 10, 3, "lists: 7 records, 8 are used"),
    (S.TENSORS, -1, 10, 1, "lists: 7 records, 6 are used"),
    (S.TENSORS, 1, 7, 2, "may not lie in this region"),
    (S.TENSORS, 3, 7, 2, "may not lie in this region"),
    (S.TENSORS, 1, 8, 1, "place depends on sizes"),
    (S.TENSORS, 4, 5, 0, "tensors[4]: ends outside"),
    (S.CUBINS, 1, 0, bytes(31) + b"\1", "the same cubin"),
    (S.CUBINS, 0, 1, 0, "no size"),
    (S.CUBINS, 0, 1, 2**63, "no size"),
    (S.KERNELS, 0, 0, 2, "no such cubin"),
    (S.KERNELS, 0, 2, 0, "no name"),
    (S.KERNELS, 0, 3, 0, "no block"),
    (S.KERNELS, 0, 4, 9, "no block"),
    (S.KERNELS, 0, 5, 2**32 - 1, "no block"),
    (S.KERNELS, 0, 6, 232_449, "too much shared"),
    (S.KERNELS, 0, 7, 4097, "too much"),
    (S.KERNELS, 0, 8, 1, "attributes are not the next"),
    (S.KERNELS, 0, 9, 17, "too many"),
    (S.KERNELS, -1, 9, 1, "attributes: 1 records, 2 are used"),
    (S.KERNELS, 0, 10, 101, "carve-out"),
    (S.KERNELS, 0, 10, -2, "carve-out"),
    (S.KERNELS, 0, 11, 2, "flags"),
    (S.ATTRIBUTES, 0, 0, 0, "unknown attribute"),
    (S.ATTRIBUTES, 0, 1, 1, "unknown attribute"),
    (S.GEMMS, 0, 0, NONE, "rows are no expression"),
    (S.GEMMS, 0, 1, 0, "no columns"),
    (S.GEMMS, 0, 2, 0, "sums nothing"),
    (S.GEMMS, 0, 3, 12, "unknown dtype"),
    (S.GEMMS, 0, 4, 2, "unknown dtype or flags"),
    (S.GEMMS, 0, 5, 1, "unknown dtype or flags"),
    (S.GEMMS, 0, 1, 2**31, "nodes[2]: reads or writes outside"),
    (S.GEMMS, 0, 4, 1, "not its parameters"),
    (S.GEMMS, 0, 6, 1, "unknown dtype or flags"),
    (S.GEMMS, 2, 3, 3, "unknown dtype or flags"),
    (S.GEMMS, 2, 5, 0, "unknown dtype or flags"),
    (S.GEMMS, 2, 5, 4, "unknown dtype or flags"),
    (S.GEMMS, 2, 5, 12, "unknown dtype or flags"),
    (S.GEMMS, 2, 6, 0, "unknown dtype or flags"),
    (S.GEMMS, 2, 6, 5, "unknown dtype or flags"),
    (S.GEMMS, 2, 4, 0, "not its parameters"),
    (S.GEMMS, 2, 1, 2**31, "nodes[4]: reads or writes outside"),
    (S.NODES, 0, 0, 5, "unknown kind"),
    (S.NODES, 0, 1, 4, "unknown kind or when"),
    (S.NODES, 0, 2, 1, "unknown kind"),
    (S.NODES, 0, 3, 3, "no such target"),
    (S.NODES, 2, 3, 4, "no such target"),
    (S.NODES, 6, 3, 0, "no such target"),
    (S.NODES, 2, 3, 2, "not its parameters"),
    (S.NODES, 0, 4, NONE, "no such grid"),
    (S.NODES, 6, 6, 0, "no such grid"),
    (S.NODES, 1, 7, 7, "parameters are not the next"),
    (S.NODES, 1, 8, 1025, "too many"),
    (S.NODES, -1, 8, 9, "more parameters than there are"),
    (S.NODES, 7, 8, 2, "not its parameters"),
    (S.PARAMS, 0, 0, 7, "unknown kind"),
    (S.PARAMS, 0, 2, 1, "unknown kind"),
    (S.PARAMS, 0, 7, 1, "unknown kind"),
    (S.PARAMS, 0, 1, 1, "unknown access"),
    (S.PARAMS, 1, 1, 0, "unknown access"),
    (S.PARAMS, 1, 1, 4, "unknown access"),
    (S.PARAMS, 0, 4, 0, "no such region"),
    (S.PARAMS, 1, 4, 5, "no such region"),
    (S.PARAMS, 0, 6, 0, "no such size"),
    (S.PARAMS, 1, 6, 8, "no such size"),
    (S.PARAMS, 0, 3, 9, "outside the parameter block"),
    (S.PARAMS, 3, 3, 2**32 - 1, "outside the parameter block"),
    (S.PARAMS, 0, 5, 1, "no such value"),
    (S.PARAMS, 1, 5, NONE, "no such value"),
    (S.PARAMS, 5, 5, 1, "no such value"),
    (S.PARAMS, 6, 5, 1, "no such value"),
    (S.PARAMS, 7, 5, 0, "no such value"),
    (S.PARAMS, 8, 6, 49, "bytes: 96 records, 97 are used"),
    (S.PARAMS, 10, 1, 2, "not its parameters"),
    (S.PARAMS, 30, 5, 1, "no such element size"),
    (S.PARAMS, 22, 1, 2, "not its parameters"),
    (S.PARAMS, 22, 3, 41, "outside the parameter block"),
    (S.PARAMS, 22, 5, 0, "nodes[4]: reads or writes outside"),
    (S.PARAMS, 27, 5, 0, "nodes[5]: reads or writes outside"),
    (S.VARIANTS, 0, 2, 12, "unknown dtype"),
    (S.VARIANTS, 0, 3, 2, "unknown dtype or flags"),
    (S.VARIANTS, 0, 0, 0, "a size is zero"),
    (S.VARIANTS, 0, 4, 1, "unknown dtype or flags"),
    (S.VARIANTS, 2, 5, 0, "unknown dtype or flags"),
    (S.VARIANTS, 0, 8, 0, "a size is zero"),
    (S.VARIANTS, 0, 7, 0, "no such kernel, or other parameters"),
    (S.VARIANTS, 0, 7, 3, "no such kernel"),
    (S.VARIANTS, 0, 10, 1, "nothing to reduce"),
    (S.VARIANTS, 2, 10, 4, "splits a scaled product"),
    (S.VARIANTS, 0, 11, 1, "no such second kernel"),
    (S.SEGMENTS, 0, 0, 4, "unknown kind"),
    (S.SEGMENTS, 0, 1, b"\1\0\0", "unknown kind"),
    (S.SEGMENTS, 0, 2, NONE, "name is no text"),
    (S.SEGMENTS, 1, 4, 2, "nodes are not the next"),
    (S.SEGMENTS, 1, 0, 2, "advances after other nodes"),
    (S.SEGMENTS, 1, 0, 3, "samples before other nodes"),
)

EDGE_DAMAGES: tuple[Damage, ...] = (
    (S.EDGES, 0, 0, 1, "does not lead to a later node"),
    (S.EDGES, 3, 1, 4, "does not lead to a later node"),
    (S.EDGES, 0, 2, 2, "unknown type"),
    (S.EDGES, 0, 3, 3, "unknown type or port"),
    (S.EDGES, 0, 4, 3, "unknown type or port"),
    (S.EDGES, 0, 5, 1, "unknown type or port"),
    (S.EDGES, 1, 1, 1, "not in ascending order"),
    (S.SEGMENTS, 0, 5, 3, "nodes: 4 records, 3 are used"),
    (S.NODES, 0, 1, 1, "joins a node that may be left out"),
    (S.PARAMS, 0, 5, NONE - 1, "no such value"),
    (S.REGIONS, 1, 1, 64, "no such index"),
)


def damaged() -> dict[str, tuple[bytes, str]]:
    """All of them by a readable name: the bytes, and a part of the reason."""
    cases = [*((False, d) for d in DAMAGES), *((True, d) for d in EDGE_DAMAGES)]
    return {
        f"{d[0].name.lower()}[{d[1]}].{d[2]}={d[3]!r}": (patched(whole(graph), *d[:4]), d[4])
        for graph, d in cases
    }
