"""Memory of a step: named pieces of the regions, and where a tensor lies in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vcc.engine.graphs.expr import Expr, most
from vcc.engine.graphs.planner.arithmetic import (
    SIZES,
    add,
    ceildiv,
    elements,
    times,
)
from vcc.engine.graphs.planner.types import Geometry
from vcc.engine.graphs.table.types import RegionKind

ALIGNMENT = 256
"""Bytes that every piece of memory starts at a multiple of."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A piece of a region that is placed as a whole; `size` in bytes."""

    name: str
    kind: RegionKind
    size: Expr


@dataclass(frozen=True, slots=True)
class Located:
    """A tensor: geometry within the memory called `memory`."""

    memory: str
    geometry: Geometry

    @property
    def offset(self) -> Expr:
        """Its first byte in the memory."""
        return times(SIZES[self.geometry.dtype], self.geometry.offset)


def tensor_bytes(dtype: str, shape: Sequence[Expr]) -> Expr:
    """Bytes of a dense tensor."""
    return times(SIZES[dtype], elements(shape))


def aligned(size: Expr) -> Expr:
    """A size rounded up to the alignment."""
    return times(ALIGNMENT, ceildiv(size, ALIGNMENT))


def stacked(memories: Sequence[Memory]) -> tuple[dict[str, Expr], Expr]:
    """Offset of each memory when they lie one after another, and the size of all of them."""
    offsets: dict[str, Expr] = {}
    at: Expr = 0
    for memory in memories:
        offsets[memory.name] = at
        at = add(at, aligned(memory.size))
    return offsets, at


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Bytes of a piece of memory, and the nodes (inclusive) between which it is in use."""

    name: str
    size: int
    first: int
    last: int


def lifetimes(
    memories: Mapping[str, Memory], uses: Sequence[Sequence[str]], highs: Mapping[str, int]
) -> tuple[Lifetime, ...]:
    """When each workspace memory is in use.

    Args:
        memories: all memory by name.
        uses: names that each node touches, in order of the nodes.
        highs: the largest sizes.
    """
    spans: dict[str, list[int]] = {}
    for index, names in enumerate(uses):
        for name in names:
            spans.setdefault(name, [index, index])[1] = index
    return tuple(
        Lifetime(name, most(aligned(memories[name].size), highs), *spans[name])
        for name in spans
        if memories[name].kind is RegionKind.WORKSPACE
    )


def pack(lives: Sequence[Lifetime]) -> tuple[dict[str, int], int]:
    """Place memory, largest first, at the lowest offset that is free for its whole lifetime.

    Returns:
        Offset of each, and the size of the workspace.
    """
    placed: list[tuple[Lifetime, int]] = []
    for life in sorted(lives, key=lambda one: (-one.size, one.first, one.name)):
        placed.append((life, _lowest_gap(life, placed)))
    size = max((offset + life.size for life, offset in placed), default=0)
    return {life.name: offset for life, offset in placed}, size


def _lowest_gap(life: Lifetime, placed: Sequence[tuple[Lifetime, int]]) -> int:
    busy = sorted(
        (offset, offset + other.size)
        for other, offset in placed
        if other.first <= life.last and life.first <= other.last
    )
    at = 0
    for start, end in busy:
        if at + life.size <= start:
            break
        at = max(at, end)
    return at
