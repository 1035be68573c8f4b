"""Check the records of a node table, section by section, before anything is made of them.

Ranges of records that belong to another record (dimensions, attributes, parameters, bytes, the
nodes of a segment) follow one another without gap or overlap, so time and memory stay in
proportion to the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vcc.engine.graphs.table.bounds import check_bounds
from vcc.engine.graphs.table.check_nodes import NODE_RULES
from vcc.engine.graphs.table.exprs import Exprs, check_exprs
from vcc.engine.graphs.table.frame import Frame
from vcc.engine.graphs.table.layout import (
    DTYPE_NAMES,
    MOST_ALIGNMENT,
    MOST_ATTRIBUTE_ID,
    MOST_ATTRIBUTES,
    MOST_CUBIN,
    MOST_DIMS,
    MOST_PARAM_BYTES,
    MOST_SHARED,
    MOST_SYMBOL,
    MOST_THREADS,
    REGION_INDICES,
    Section,
)
from vcc.engine.graphs.table.types import NON_PORTABLE_CLUSTER, RegionKind, Role
from vcc.engine.graphs.table.view import Need, Record, View

STATIC = {Role.WEIGHT: RegionKind.WEIGHTS, Role.CONSTANT: RegionKind.WEIGHTS}
HOMES = {**STATIC, Role.CACHE: RegionKind.KV_CACHE}
"""The only kind of region where tensors of these roles may lie."""


def check(frame: Frame) -> View:
    """Check everything that can be known before a table is bound to memory.

    Raises:
        IntegrityError: naming the section, the record and what is wrong with it.
    """
    _check_symbols(frame)
    view = View(frame, check_exprs(frame))
    for section, rule in {**_RULES, **NODE_RULES}.items():
        for index, record in enumerate(frame.records[section]):
            rule(view, record, view.need(section, index))
    for section in (Section.LISTS, Section.ATTRIBUTES, Section.NODES, Section.PARAMS):
        view.check_all_owned(section, frame.count(section))
    view.check_all_owned(Section.BYTES, len(frame.data))
    for end in (2, 3):
        sizes = [symbol[end] for symbol in frame.records[Section.SYMBOLS]]
        check_bounds(view, view.exprs.values(sizes))
    return view


def _check_symbols(frame: Frame) -> None:
    """Before the expressions, whose ranges come from here; names are checked after them."""
    view = View(frame, Exprs((), ()))
    for index, (offset, length, low, high) in enumerate(frame.records[Section.SYMBOLS]):
        need, name = view.need(Section.SYMBOLS, index), view.text(offset, length)
        need(bool(name) and view.fresh(Section.SYMBOLS, name), "no name of its own")
        need(0 <= low <= high <= MOST_SYMBOL, "empty range, or beyond 53 bits")


def _region(view: View, record: Record, need: Need) -> None:
    kind, index, size, alignment = record
    need(kind < len(RegionKind), "unknown kind")
    need(index < REGION_INDICES.get(kind, 1), "no such index")
    need(view.fresh(Section.REGIONS, (kind, index)), "the same region again")
    need(view.exprs.usable(size), "its size is no expression")
    power = alignment.bit_count() == 1
    need(power and alignment <= MOST_ALIGNMENT, "its alignment is no power of two in range")


def _list(view: View, record: Record, need: Need) -> None:
    need(view.exprs.usable(record[0]), "no expression")


def _tensor(view: View, record: Record, need: Need) -> None:
    *texts, role, dtype, zero, region, offset, first, dims = record
    name = view.text(*texts[:2])
    need(bool(name) and view.fresh(Section.TENSORS, name), "no name of its own")
    need(view.text(*texts[2:]) is not None, "its target is no text")
    need(role < len(Role) and dtype < len(DTYPE_NAMES) and not zero, "unknown role or dtype")
    need(region < view.frame.count(Section.REGIONS), "no such region")
    need(view.exprs.usable(offset), "its offset is no expression")
    follows = view.follows(Section.LISTS, first, dims)
    need(follows and dims <= MOST_DIMS, "its dimensions are not the next ones, or too many")
    home = view.records(Section.REGIONS)[region][0]
    need(HOMES.get(role, home) == home, "it may not lie in this region")
    need(role not in STATIC or _static(view, offset, first, dims), "its place depends on sizes")


def _static(view: View, offset: int, first: int, dims: int) -> bool:
    lists = view.records(Section.LISTS)
    shape = lists[first : first + dims] if first + dims <= len(lists) else []  # refused later
    return all(view.exprs.fixed(index) for index in (offset, *(size for (size,) in shape)))


def _cubin(view: View, record: Record, need: Need) -> None:
    digest, size = record
    need(view.fresh(Section.CUBINS, digest), "the same cubin again")
    need(1 <= size <= MOST_CUBIN, "no size that a cubin can have")


def _kernel(view: View, record: Record, need: Need) -> None:
    cubin, offset, length, x, y, z, shared, block, first, count, carveout, flags = record
    need(cubin < view.frame.count(Section.CUBINS), "no such cubin")
    need(bool(view.text(offset, length)), "its function has no name")
    need(1 <= x * y * z <= MOST_THREADS, "no block of threads")
    need(
        shared <= MOST_SHARED and block <= MOST_PARAM_BYTES, "too much shared memory or parameters"
    )
    follows = view.follows(Section.ATTRIBUTES, first, count)
    need(follows and count <= MOST_ATTRIBUTES, "its attributes are not the next ones, or too many")
    need(-1 <= carveout <= 100 and flags <= NON_PORTABLE_CLUSTER, "unknown carve-out or flags")


def _attribute(view: View, record: Record, need: Need) -> None:
    id, zero, _ = record
    need(1 <= id <= MOST_ATTRIBUTE_ID and not zero, "unknown attribute")


Rule = Callable[[View, Record, Need], None]

_RULES: Mapping[Section, Rule] = {
    Section.REGIONS: _region,
    Section.LISTS: _list,
    Section.TENSORS: _tensor,
    Section.CUBINS: _cubin,
    Section.KERNELS: _kernel,
    Section.ATTRIBUTES: _attribute,
}
