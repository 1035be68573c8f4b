"""Gated activations written out in torch become one operator: silu, gelu by tanh or by erf.

    gate, up = x.chunk(2, dim=-1);  act(gate) * up

Gate and up must be the halves of one tensor, as a fused projection makes them; where they come from
two products the compiler fuses the activation behind those.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.fusing import a_tensor, fuse, loose_rows, other_dtype, switched_off
from vcc.engine.passes.pattern import Capture, Item, Match, Op
from vcc.engine.passes.rewrite import call, replace, same_sizes, value

aten, vcc = torch.ops.aten, torch.ops.vcc

HALVES = Op(
    (aten.chunk.default, aten.split.Tensor, aten.split_with_sizes.default),
    Capture("x", a_tensor),
    name="halves",
)
GATE = Op((aten.silu.default, aten.gelu.default), Item(HALVES, 0, name="gate"), name="act")
PATTERN = Op((aten.mul.Tensor,), GATE, Item(HALVES, 1, name="up"), commutes=True)

SWITCHES = {aten.silu.default: "silu_and_mul", aten.gelu.default: "gelu_tanh_and_mul"}
"""The custom op whose switch an activation obeys."""


def fuse_act_mul(graph: GraphModule, context: PassContext) -> Outcome:
    """Write an activation and the product with its other half as one operator."""
    return fuse(graph, ((PATTERN, lambda found: _build(found, context)),))


def _build(found: Match, context: PassContext) -> str:
    root, x, act = found.nodes[0], found.captures["x"], found.captures["act"]
    reason = switched_off(context, SWITCHES[act.target]) or _differs(found)
    if not reason:
        target, rest = _operator(act)
        replace(root, call(root, target, x, *rest))
    return reason


def _operator(act: Node) -> tuple[Any, tuple[bool, ...]]:
    if act.target is aten.silu.default:
        return vcc.silu_and_mul.default, ()
    return vcc.gelu_and_mul.default, (act.kwargs.get("approximate", "none") == "tanh",)


def _differs(found: Match) -> str:
    x, gate, up = (found.captures[name] for name in ("x", "gate", "up"))
    root = found.nodes[0]
    width = value(x).shape[-1]
    if not same_sizes(gate, up) or not isinstance(width, int):
        return f"{found.captures['halves']} makes no halves of {x}"
    if value(gate).shape[-1] * 2 != width:
        return f"{found.captures['halves']} does not halve the last dimension of {x}"
    return other_dtype(root, x) or loose_rows(x)


FUSE_ACT_MUL = builtin(
    "fuse_act_mul", fuse_act_mul, needs=("vcc::silu_and_mul", "vcc::gelu_and_mul")
)
