"""The levels -O0 to -O3 and the passes they switch, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .modes import CompileMode, GraphMode, OptLevel
from .types import Scalar

DEFAULT_LEVEL = OptLevel.O2


@dataclass(frozen=True, slots=True)
class Level:
    """What a level gives to fields the user left unset."""

    mode: CompileMode
    graphs: GraphMode
    inductor: tuple[tuple[str, Scalar], ...] = ()


LEVEL_TABLE: Mapping[OptLevel, Level] = {
    OptLevel.O0: Level(CompileMode.NO_COMPILATION, GraphMode.NONE),
    OptLevel.O1: Level(CompileMode.VCC_COMPILE, GraphMode.PIECEWISE),
    OptLevel.O2: Level(CompileMode.VCC_COMPILE, GraphMode.FULL_AND_PIECEWISE),
    OptLevel.O3: Level(
        CompileMode.VCC_COMPILE, GraphMode.FULL_AND_PIECEWISE, (("max_autotune", True),)
    ),
}


@dataclass(frozen=True, slots=True)
class PassRule:
    """How a pass is switched when the user does not.

    Args:
        name: field of `PassConfig`.
        file: the file of `engine/passes` that defines it, whose digest is its version.
        from_level: lowest level that switches the pass on.
        needs_ops: custom ops that must be enabled, as a fusion replaces calls of them.
        joins_attention: the pass rewrites across an attention op, so the graph cannot be cut there.
        parameters: names and plain values that the rewrite is given; its version covers them.
    """

    name: str
    from_level: OptLevel
    file: str = ""
    needs_ops: frozenset[str] = frozenset()
    joins_attention: bool = False
    parameters: tuple[tuple[str, Scalar], ...] = ()


PASS_RULES: tuple[PassRule, ...] = (
    PassRule("eliminate_noops", OptLevel.O1, "noops.py"),
    PassRule("coalesce_splits", OptLevel.O1, "splits.py"),
    PassRule("eliminate_clones", OptLevel.O1, "clones.py"),
    PassRule("eliminate_dead_code", OptLevel.O1, "dead_code.py"),
    PassRule("restore_in_place", OptLevel.O1, "in_place.py"),
    PassRule("donate_buffers", OptLevel.O1, "donate.py"),
)
"""One row per field of `PassConfig`; a new pass adds its field and its row."""
