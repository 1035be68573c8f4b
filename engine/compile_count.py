"""How many pieces a build would compile: ranges of sizes times unique pieces. No torch.

How many unique pieces a model has is known once it was traced: an artifact of the same model, cut
at the same operators, remembers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vcc.cache.errors import VccError
from vcc.cache.loaded import Loaded
from vcc.cache.store import Store
from vcc.engine.compile.interface import compiler_of
from vcc.engine.config.artifacts import Content
from vcc.engine.listed import listed
from vcc.engine.ranged import range_name, ranges_of
from vcc.engine.request import Settled, request_pairs

SAME = ("model.digest", "target.platform", "config.mode", "config.splitting_ops", "config.backend")
"""Labels of a request that decide how many pieces there are."""


@dataclass(frozen=True, slots=True)
class CompileCount:
    """What would be compiled.

    Attributes:
        ranges: the ranges and exact sizes, as `9-32` and `16-16`; empty where nothing compiles.
        pieces: unique pieces of a range; None where no artifact of this model remembers.
        by_range: whether each range has code of its own.
    """

    ranges: tuple[str, ...] = ()
    pieces: int | None = None
    by_range: bool = True

    @property
    def total(self) -> int | None:
        """Compiles; None where the number of pieces is not known."""
        if not self.ranges:
            return 0
        times = len(self.ranges) if self.by_range else 1
        return None if self.pieces is None else self.pieces * times

    def __str__(self) -> str:
        if not self.ranges:
            return "none"
        named = (low if low == high else name for name, low, high in map(_ends, self.ranges))
        names = f": {listed([*named])}" if len(self.ranges) > 1 else ""
        count = len(self.ranges)
        spread = f"{count} range{'s' * (count != 1)} of sizes{names}"
        how = f"for each of {spread}" if self.by_range and count > 1 else f"once for {spread}"
        if self.pieces is None:
            return f"each unique piece {how}"
        return f"{self.total}: {self.pieces} unique pieces, {how}"


def _ends(name: str) -> tuple[str, str, str]:
    low, _, high = name.partition("-")
    return name, low, high


def compile_count(settled: Settled, store: Store) -> CompileCount:
    """The compiles of a cold build.

    Raises:
        ConfigError: a pass of the user's cannot be loaded.
    """
    holds = set(settled.resolved.artifact.holds)
    if not {Content.PIECES, Content.CUBINS} & holds or settled.resolved.artifact.needs_gpu:
        return CompileCount()
    ranges = tuple(range_name(one) for one in ranges_of(settled, _asked_by_passes(settled)))
    by_range = Content.PIECES not in holds or compiler_of(settled).by_range
    return CompileCount(ranges, _remembered(settled, store), by_range)


def _asked_by_passes(settled: Settled) -> tuple[int, ...]:
    """End points of the user's passes; those of ours are in the resolved configuration."""
    names = settled.resolved.config.user_passes or ()
    if not names:
        return ()
    from vcc.engine.passes.apply import range_ends
    from vcc.engine.passes.context import context_of
    from vcc.engine.passes.user import load  # runs the user's code, which brings torch

    return range_ends(load(names), context_of(settled))


def _remembered(settled: Settled, store: Store) -> int | None:
    wanted = request_pairs(settled)[0]
    try:
        for entry in store.entries():
            if all(entry.fields.get(label) == wanted.get(label) for label in SAME):
                return _pieces(store.load(entry))
    except VccError:  # a count does without
        return None
    return None


def _pieces(loaded: Loaded) -> int | None:
    info: dict[str, Any] = loaded.manifest.info
    ranges, pieces = info.get("ranges"), info.get("pieces")
    if isinstance(ranges, list) and ranges and isinstance(ranges[0], dict):
        pieces = ranges[0].get("compiled")
    return len(pieces) if isinstance(pieces, list) and pieces else None
