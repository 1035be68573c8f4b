"""Where the memory of a step lies: the regions of a table, which those of all ranges share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr, most
from vcc.engine.graphs.planner.emit import Places
from vcc.engine.graphs.planner.flat import Flat, pointers_of
from vcc.engine.graphs.planner.memory import Lifetime, Memory, lifetimes, pack, stacked
from vcc.engine.graphs.planner.step import Step
from vcc.engine.graphs.table.types import Region, RegionKind, Role

OWN = (RegionKind.WORKSPACE, RegionKind.SCRATCH)
"""Regions that hold nothing between steps: each table has its own order in them."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A step whose nodes are known; `scratch` is the bytes of its partial products."""

    step: Step
    flat: Flat
    scratch: int


def lay_out(drawn: Sequence[Drawn]) -> tuple[tuple[Places, tuple[Region, ...]], ...]:
    """Offsets of all memory, and the regions that hold it, of one table or of one a range.

    Weights, caches, inputs and results lie at one place in all tables, and every region has the
    size that the largest of them needs, so a step may take any table over the same memory.

    Raises:
        CompileError: the steps hold different memory.
    """
    fixed = _inputs_of(drawn)
    offsets: list[dict[str, Expr]] = []
    sizes: list[dict[RegionKind, Expr]] = []
    for one in drawn:
        found, lengths = _stacked(one, fixed)
        spaces, lengths[RegionKind.WORKSPACE] = pack(_lives(one))
        lengths[RegionKind.SCRATCH] = one.scratch
        offsets.append(found | spaces)
        sizes.append(lengths)
    if len(drawn) > 1:
        _check_shared(drawn, offsets, sizes)
    regions = tuple(Region(kind, size) for kind, size in _largest(sizes).items() if size != 0)
    indices = {region.kind: index for index, region in enumerate(regions)}
    return tuple(
        (Places(indices, one.flat.memories, found), regions)
        for one, found in zip(drawn, offsets, strict=True)
    )


def _inputs_of(drawn: Sequence[Drawn]) -> list[int]:
    """Bytes of each input and result, in their order, at the largest sizes of any step.

    They lie at the same place at every size: the host writes and reads there.
    """
    each = [
        [most(memory.size, one.step.highs) for memory in _of_kind(one, RegionKind.IO)]
        for one in drawn
    ]
    if len({len(sizes) for sizes in each}) != 1:
        raise _different("their inputs and results are not as many")
    return [max(sizes) for sizes in zip(*each, strict=True)]


def _stacked(one: Drawn, fixed: Sequence[int]) -> tuple[dict[str, Expr], dict[RegionKind, Expr]]:
    offsets: dict[str, Expr] = {}
    sizes: dict[RegionKind, Expr] = {}
    for kind in (RegionKind.WEIGHTS, RegionKind.KV_CACHE, RegionKind.IO):
        memories = _of_kind(one, kind)
        if kind is RegionKind.IO:
            pairs = zip(memories, fixed, strict=True)
            memories = [replace(memory, size=size) for memory, size in pairs]
        found, sizes[kind] = stacked(memories)
        offsets |= found
    return offsets, sizes


def _lives(one: Drawn) -> tuple[Lifetime, ...]:
    uses = [[p.memory for p in pointers_of(node)] for node in one.flat.nodes]
    return lifetimes(one.flat.memories, uses, one.step.highs)


def _of_kind(one: Drawn, kind: RegionKind) -> list[Memory]:
    """Memory as a region holds it: inputs before outputs, results of the step last."""
    ranks, roles = {Role.OUTPUT: 1, Role.STATE: 1}, one.step.roles
    found = (memory for memory in one.flat.memories.values() if memory.kind is kind)
    return sorted(found, key=lambda m: ranks.get(roles[m.name], 0) if m.name in roles else 2)


def _largest(sizes: Sequence[Mapping[RegionKind, Expr]]) -> dict[RegionKind, Expr]:
    first = dict(sizes[0])
    for kind in OWN:
        first[kind] = max(one[kind] for one in sizes)
    return first


def _check_shared(
    drawn: Sequence[Drawn],
    offsets: Sequence[Mapping[str, Expr]],
    sizes: Sequence[Mapping[RegionKind, Expr]],
) -> None:
    places = [
        {
            (name, role): (one.step.values[name].geometry.dtype, found[memory])
            for name, role in one.step.roles.items()
            if (memory := one.step.values[name].memory) in found
        }
        for one, found in zip(drawn, offsets, strict=True)
    ]
    lengths = [{k: size for k, size in one.items() if k not in OWN} for one in sizes]
    if any(one != places[0] for one in places) or any(one != lengths[0] for one in lengths):
        raise _different("a weight, a cache or an input of one lies elsewhere in another")


def _different(why: str) -> CompileError:
    return CompileError(
        "the ranges of this step cannot share memory",
        why,
        "leave compile_ranges and compile_sizes out, or find the pass: vcc compile --keep DIR",
    )
