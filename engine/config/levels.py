"""The levels -O0 to -O3 and the passes they switch, as tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

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
        from_level: lowest level that switches the pass on; None: no level does.
        parts: further files of `engine/passes` that it is made with.
        needs_ops: custom ops that must be enabled, as a fusion replaces calls of them.
        joins_attention: the pass rewrites across an attention op, so the graph cannot be cut there.
        parameters: names and plain values that the rewrite is given; its version covers them.
        range_ends: token counts at which its gate opens or closes, ascending: code is made for the
            ranges between them, so that the pass runs where it may.
        missing_op: an operator that it needs and that nothing implements yet: the pass is skipped
            at every size, so it asks for no range.
    """

    name: str
    from_level: OptLevel | None
    file: str = ""
    needs_ops: frozenset[str] = frozenset()
    joins_attention: bool = False
    parameters: tuple[tuple[str, Scalar], ...] = ()
    range_ends: tuple[int, ...] = ()
    parts: tuple[str, ...] = ()
    missing_op: str = ""


def _fusion(
    name: str,
    file: str,
    ops: Collection[str] = (),
    *parts: str,
    level: OptLevel | None = OptLevel.O2,
    **more: Any,
) -> PassRule:
    """A fusion: from -O2 where the ops whose calls it replaces are enabled."""
    return PassRule(name, level, file, frozenset(ops), parts=("fusing.py", *parts), **more)


PASS_RULES: tuple[PassRule, ...] = (
    PassRule("eliminate_noops", OptLevel.O1, "noops.py"),
    PassRule("coalesce_splits", OptLevel.O1, "splits.py"),
    _fusion("fuse_rms_norm", "rms_norm.py", {"rms_norm"}),
    _fusion("fuse_add_rms_norm", "add_rms_norm.py", {"rms_norm"}),
    _fusion("fuse_act_mul", "act_mul.py", {"silu_and_mul"}),
    _fusion(
        "fuse_all_reduce_norm",
        "all_reduce_norm.py",
        level=None,
        range_ends=(512,),
        missing_op="vcc::all_reduce_rms_norm",
    ),
    _fusion("fuse_qk_norm_rope", "qk_norm_rope.py", {"rms_norm", "rotary_embedding"}),
    _fusion("fuse_rope_kv_write", "rope_kv_write.py", {"rotary_embedding"}),
    _fusion("fuse_norm_quant", "norm_quant.py", {"rms_norm"}, "quant_forms.py"),
    _fusion("fuse_act_quant", "act_quant.py", {"silu_and_mul"}, "quant_forms.py"),
    _fusion(
        "fuse_attention_quant",
        "attention_quant.py",
        set(),
        "quant_forms.py",
        level=None,
        joins_attention=True,
    ),
    _fusion("fuse_norm_linear", "norm_linear.py", level=None),
    _fusion("fuse_moe_router", "moe_router.py", {"topk_softmax"}),
    _fusion("fuse_moe_experts", "moe_experts.py", {"topk_softmax"}),
    PassRule("eliminate_clones", OptLevel.O1, "clones.py"),
    PassRule("eliminate_dead_code", OptLevel.O1, "dead_code.py"),
    PassRule("restore_in_place", OptLevel.O1, "in_place.py"),
    PassRule("donate_buffers", OptLevel.O1, "donate.py"),
)
"""One row per field of `PassConfig`; a new pass adds its field and its row."""
