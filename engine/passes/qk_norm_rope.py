"""The norm of each query and key head and the rotation behind it become `vcc::qk_norm_rope`.

Both norms must agree in epsilon and weight offset, and run over the heads that are rotated.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.fusing import RESHAPES, a_number, a_tensor, fuse, loose_rows, other_dtype
from vcc.engine.passes.pattern import Capture, Match, Op
from vcc.engine.passes.rewrite import call, replace, value

vcc = torch.ops.vcc

EPS, OFFSET = Capture("eps", a_number), Capture("weight_offset", a_number)


def _normed(name: str) -> Op:
    heads = Op(RESHAPES, Capture(name, a_tensor), name=f"heads of {name}")
    norm = Op((vcc.rms_norm.default,), heads, Capture(f"{name}_weight"), EPS, OFFSET)
    return Op(RESHAPES, norm, name=f"rows of {name}")


PATTERN = Op(
    (vcc.rotary_embedding.default,),
    _normed("q"),
    _normed("k"),
    Capture("cos"),
    Capture("sin"),
    Capture("head_dim"),
)


def fuse_qk_norm_rope(graph: GraphModule, context: PassContext) -> Outcome:
    """Norm and rotate query and key heads in one call."""
    return fuse(graph, ((PATTERN, _build),))


def _build(found: Match) -> str:
    root, kept = found.nodes[0], found.captures
    reason = _differs(found, "q") or _differs(found, "k")
    if reason:
        return reason
    q, k, weights = kept["q"], kept["k"], (kept["q_weight"], kept["k_weight"])
    rest = (kept["cos"], kept["sin"], kept["head_dim"], kept["eps"], kept["weight_offset"])
    replace(root, call(root, vcc.qk_norm_rope.default, q, k, *weights, *rest))
    return ""


def _differs(found: Match, name: str) -> str:
    x, head_dim = found.captures[name], found.captures["head_dim"]
    heads: Node = found.captures[f"heads of {name}"]
    if len(value(x).shape) != 2 or value(heads).shape[-1] != head_dim:
        norm = value(heads).shape[-1]
        return f"{name} is normed over {norm} values, where heads of {head_dim} are rotated"
    return other_dtype(found.captures[f"{name}_weight"], x) or loose_rows(x)


FUSE_QK_NORM_ROPE = builtin("fuse_qk_norm_rope", fuse_qk_norm_rope, needs=("vcc::qk_norm_rope",))
