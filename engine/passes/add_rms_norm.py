"""The addition of a residual goes into the RMS norm behind it: `vcc::fused_add_rms_norm`.

The sum is made there too, for those who read it later; anybody who reads it before the norm lets
the fused call move up to the addition.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.fusing import a_tensor, a_vector, comes_before, fuse, loose_rows, other_dtype
from vcc.engine.passes.pattern import Capture, Match, Op
from vcc.engine.passes.rewrite import call, item, replace, same_sizes
from vcc.engine.torch_shim.nodes import call_arguments, keyword_only

aten, vcc = torch.ops.aten, torch.ops.vcc

X, RESIDUAL = Capture("x", a_tensor), Capture("residual", a_tensor)
SUM = Op((aten.add.Tensor,), X, RESIDUAL, name="sum", shared=True)
PATTERN = Op((vcc.rms_norm.default,), SUM, Capture("weight", a_vector))


def fuse_add_rms_norm(graph: GraphModule, context: PassContext) -> Outcome:
    """Add a residual inside the RMS norm that reads the sum."""
    return fuse(graph, ((PATTERN, _build),))


def _build(found: Match) -> str:
    root, total = found.nodes[0], found.captures["sum"]
    x, residual = found.captures["x"], found.captures["residual"]
    _, weight, eps, offset = call_arguments(root)
    reason = _differs(total, x, residual)
    if reason:
        return reason
    place = _place(root, total, weight)
    if place is None:
        return f"{total} is read before {weight} is there"
    fused = call(place, vcc.fused_add_rms_norm.default, x, residual, weight, eps, offset)
    normed, summed = item(fused, 0), item(fused, 1)
    replace(root, normed)
    replace(total, summed)
    return ""


def _differs(total: Node, x: Node, residual: Node) -> str:
    if keyword_only(total):
        return f"{total} scales what it adds"
    for one in (x, residual):
        if not same_sizes(one, total):
            return f"{one} is broadcast by {total}"
        reason = other_dtype(one, total) or loose_rows(one)
        if reason:
            return reason
    return ""


def _place(root: Node, total: Node, weight: Node) -> Node | None:
    """Where the fused call goes: at the norm, or at the sum where it is read before the norm."""
    if all(user is root or comes_before(root, user) for user in total.users):
        return root
    return total if comes_before(weight, total) else None


FUSE_ADD_RMS_NORM = builtin(
    "fuse_add_rms_norm", fuse_add_rms_norm, needs=("vcc::fused_add_rms_norm",)
)
