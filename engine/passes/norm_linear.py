"""An RMS norm goes into the projection that alone reads it: `vcc::rms_norm_linear`.

Off at every level: whether it beats a norm and a product apart is a question of the device. A
residual addition stays beside it, where the compiler fuses it behind what makes the branch.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.fusing import a_tensor, fuse, other_dtype
from vcc.engine.passes.pattern import Capture, Item, Match, Op, Pattern
from vcc.engine.passes.rewrite import call, replace
from vcc.engine.torch_shim.nodes import call_arguments

aten, vcc = torch.ops.aten, torch.ops.vcc


def _linear(of: Pattern) -> Op:
    return Op((aten.linear.default,), of, Capture("weight", a_tensor))


NORM = _linear(Op((vcc.rms_norm.default,), name="norm"))
ADD_NORM = _linear(Item(Op((vcc.fused_add_rms_norm.default,), name="norm", shared=True), 0))


def fuse_norm_linear(graph: GraphModule, context: PassContext) -> Outcome:
    """Norm the rows of a projection inside it."""
    return fuse(graph, ((NORM, _build), (ADD_NORM, _build_add)))


def _build(found: Match) -> str:
    x, norm_weight, eps, offset = call_arguments(found.captures["norm"])
    return _put(found, x, norm_weight, eps, offset)


def _build_add(found: Match) -> str:
    norm: Node = found.captures["norm"]
    x, residual, norm_weight, eps, offset = call_arguments(norm)
    total = call(norm, aten.add.Tensor, x, residual)
    reason = _put(found, total, norm_weight, eps, offset)
    if reason:
        norm.graph.erase_node(total)
        return reason
    for one in list(norm.users):
        replace(one, total)
    return ""


def _put(found: Match, x: Node, norm_weight: Node, eps: float, offset: float) -> str:
    root = found.nodes[0]
    _, weight, bias = call_arguments(root)
    reason = other_dtype(weight, x) or (other_dtype(bias, x) if bias is not None else "")
    if not reason:
        made = (x, norm_weight, weight, bias, eps, offset)
        replace(root, call(root, vcc.rms_norm_linear.default, *made))
    return reason


FUSE_NORM_LINEAR = builtin("fuse_norm_linear", fuse_norm_linear, needs=("vcc::rms_norm_linear",))
