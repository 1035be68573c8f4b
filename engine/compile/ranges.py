"""Passes and partition once for each range of sizes that code is made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from vcc.engine.compile.dump import Dump
from vcc.engine.config.types import DimRange
from vcc.engine.events import Events
from vcc.engine.monitor import Counters
from vcc.engine.partition.narrow import narrowed
from vcc.engine.partition.ops import absent
from vcc.engine.partition.split import split
from vcc.engine.passes.apply import apply, range_ends, unmatched
from vcc.engine.passes.context import context_of
from vcc.engine.passes.user import chosen
from vcc.engine.ranged import range_name, ranges_of, size_of
from vcc.engine.request import Settled
from vcc.engine.types import Passed, PassReport, Piece, Pieces, Traced


@dataclass(frozen=True, slots=True)
class Ranging:
    """What the stages of all ranges share: for whom they work, and who is told.

    `by_range` is False where the compiler makes equal code of equal graphs whatever their range.
    """

    settled: Settled
    events: Events
    counters: Counters
    dump: Dump
    by_range: bool = True


@dataclass(frozen=True, slots=True)
class RangePassed:
    """The graph of one range after its passes; `whole` has the ranges of the whole step."""

    sizes: DimRange
    passed: Passed
    whole: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RangePieces:
    """The step program and the pieces of one range."""

    sizes: DimRange
    passed: Passed
    pieces: Pieces


@dataclass(frozen=True, slots=True)
class Cut:
    """All ranges, and each piece once.

    Attributes:
        ranges: in the order of `token_ranges`: ranges ascending, then exact sizes.
        unique: every distinct piece; what does not depend on the range is one for all.
        calls: how often a step calls each piece, in the first range that has it.
    """

    ranges: tuple[RangePieces, ...]
    unique: tuple[Piece, ...] = field(init=False)
    calls: Mapping[str, int] = field(init=False)

    @property
    def parted(self) -> bool:
        """Whether the step of any range calls a splitting op."""
        return any(call.kind == "op" for one in self.ranges for call in one.pieces.program.calls)

    def __post_init__(self) -> None:
        unique: dict[str, Piece] = {}
        calls: dict[str, int] = {}
        for one in self.ranges:
            for piece in one.pieces.unique:
                unique.setdefault(piece.id, piece)
            for name, count in one.pieces.calls.items():
                calls.setdefault(name, count)
        object.__setattr__(self, "unique", tuple(unique.values()))
        object.__setattr__(self, "calls", calls)


def run_passes(traced: Traced, ranging: Ranging) -> tuple[RangePassed, ...]:
    """The passes of every range, with their gates asked for it.

    Args:
        traced: the whole step; rewritten in place where there is one range.
        ranging: the build.

    Raises:
        CompileError: a pass failed.
    """
    settled, passes = ranging.settled, chosen(ranging.settled.resolved.config)
    ends = range_ends(passes, context_of(settled))
    ranges, place = ranges_of(settled, ends), size_of(settled)
    whole = dict(traced.ranges)
    found = []
    for sizes in ranges:
        alone = len(ranges) == 1
        graph = traced if alone else narrowed(traced, (place.input, place.dim), sizes)
        ranging.dump.begin("" if alone else range_name(sizes))
        context = context_of(settled, None if alone else sizes)
        passed = apply(graph, passes, context, ranging.dump)
        ran = sum(not report.skipped for report in passed.reports)
        ranging.counters.add("passes", ran)
        found.append(RangePassed(sizes, passed, whole))
    merged = Passed(traced, merged_reports([one.passed for one in found]))
    for line in unmatched(merged, settled.request.compilation):
        ranging.events.note(line)
    return tuple(found)


def cut(ranges: Sequence[RangePassed], options: Sequence[tuple[str, str]], ranging: Ranging) -> Cut:
    """Cut the graph of every range at the splitting ops; those that the model lacks are told.

    Args:
        ranges: of `run_passes`.
        options: labels and values of everything else that steers code generation.
        ranging: the build.

    Raises:
        ConfigError: a splitting op that does not exist.
        CompileError: a value cannot be handed from piece to piece.
    """
    ops = ranging.settled.resolved.config.splitting_ops or ()
    asked = ranging.settled.request.compilation.splitting_ops is not None
    missing = [set(absent(one.passed.traced.graph.graph, ops)) for one in ranges]
    for name in (name for name in ops if asked and all(name in one for one in missing)):
        ranging.events.note(f"splitting op {name} is not in this model: nothing is cut there")
    found = Cut(tuple(_parted(one, ops, options, ranging) for one in ranges))
    ranging.counters.add("pieces", sum(sum(r.pieces.calls.values()) for r in found.ranges))
    ranging.counters.add("unique_pieces", len(found.unique))
    for one in found.ranges:
        ranging.dump.pieces(one.pieces)
    return found


def _parted(
    one: RangePassed, ops: Sequence[str], options: Sequence[tuple[str, str]], ranging: Ranging
) -> RangePieces:
    traced = one.passed.traced
    if ranging.by_range:
        return RangePieces(one.sizes, one.passed, split(traced, ops, options))
    pieces = split(replace(traced, ranges=one.whole), ops, options)
    place = size_of(ranging.settled)
    symbols = [
        msgspec.structs.replace(symbol, low=one.sizes.min, high=one.sizes.max)
        if (symbol.source, symbol.dim) == (place.input, place.dim)
        else symbol
        for symbol in pieces.program.symbols
    ]
    program = msgspec.structs.replace(pieces.program, symbols=symbols)
    return RangePieces(one.sizes, one.passed, replace(pieces, program=program))


def merged_reports(all_passed: Sequence[Passed]) -> tuple[PassReport, ...]:
    """One report a pass: of the range where it matched most, or the first where it ran."""
    by_pass = zip(*(one.reports for one in all_passed), strict=True)
    return tuple(
        max(reports, key=lambda report: (not report.skipped, report.matches)) for reports in by_pass
    )


def ranges_info(found: Cut) -> list[dict[str, Any]]:
    """What the manifest says of the ranges; empty where one serves every size."""
    if len(found.ranges) == 1:
        return []
    return [
        {
            "sizes": range_name(one.sizes),
            "pieces": sum(one.pieces.calls.values()),
            "compiled": [piece.id for piece in one.pieces.unique],
            "passes": {r.name: r.skipped or r.matches for r in one.passed.reports},
        }
        for one in found.ranges
    ]
