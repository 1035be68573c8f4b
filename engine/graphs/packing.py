"""Static liveness packing: where each buffer of a step lies in one workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vcc.engine.graphs.program import Program

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Placement:
    """Byte offset of every buffer, and the size of the workspace that holds them all."""

    offsets: Mapping[str, int]
    size: int


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer's bytes and the calls (inclusive indices) between which it must not be reused."""

    name: str
    size: int
    first: int
    last: int


def lifetimes(program: Program, sizes: Mapping[str, int]) -> tuple[Lifetime, ...]:
    """First and last call of each buffer; a step output lives until after the last call."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, call in enumerate(program.calls):
        for name in (*(a for a in call.args if isinstance(a, str)), *call.outs):
            first.setdefault(name, index)
            last[name] = index
    for name in program.outputs:
        last[name] = len(program.calls)
    return tuple(Lifetime(n, sizes[n], first[n], last[n]) for n in sizes if n in first)


def pack(program: Program, sizes: Mapping[str, int]) -> Placement:
    """Place buffers largest first at the lowest offset free over their whole lifetime.

    Args:
        program: the step.
        sizes: bytes of each buffer at the largest declared sizes.
    """
    placed: list[tuple[Lifetime, int]] = []
    wanted = sorted(lifetimes(program, sizes), key=lambda life: (-life.size, life.first, life.name))
    for life in wanted:
        placed.append((life, _lowest_gap(life, placed)))
    end = max((offset + life.size for life, offset in placed), default=0)
    return Placement({life.name: offset for life, offset in placed}, end)


def _lowest_gap(life: Lifetime, placed: list[tuple[Lifetime, int]]) -> int:
    busy = sorted(
        (offset, offset + other.size)
        for other, offset in placed
        if other.first <= life.last and life.first <= other.last
    )
    at = 0
    for start, end in busy:
        if at + life.size <= start:
            break
        at = max(at, _aligned(end))
    return at


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
