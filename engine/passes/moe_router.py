"""The router of a mixture of experts becomes one operator: probabilities, the k largest, their sum.

values, ids = softmax(logits, -1, dtype=float32).topk(k)         vcc::topk_softmax
values, ids = sigmoid(logits.float()).topk(k)                    vcc::topk_sigmoid
values /= values.sum(-1, keepdim=True)                           renormalise
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.fusing import a_tensor, fuse, place_of
from vcc.engine.passes.pattern import Capture, Const, Either, Item, Match, Op
from vcc.engine.passes.rewrite import call, item, prune, replace, value
from vcc.engine.torch_shim.nodes import call_arguments

aten, vcc = torch.ops.aten, torch.ops.vcc

LOGITS = Capture("logits", a_tensor)
CAST = Either((Op((aten.to.dtype,), LOGITS, Const(torch.float32)), LOGITS))
LIKELY = Either(
    (
        Op((aten.softmax.int,), CAST, Const(-1), name="likely"),
        Op((aten.sigmoid.default,), CAST, name="likely"),
    )
)
TOPK = Op((aten.topk.default,), LIKELY, Capture("top_k"), name="topk", shared=True)
VALUES = Item(TOPK, 0, name="values")
SUM = Op((aten.sum.dim_IntList,), VALUES, Const([-1]), Const(True))
RENORMALISED = Op((aten.div.Tensor, aten.div_.Tensor), VALUES, SUM)

FUSED = {aten.softmax.int: vcc.topk_softmax, aten.sigmoid.default: vcc.topk_sigmoid}


def fuse_moe_router(graph: GraphModule, context: PassContext) -> Outcome:
    """Find the likeliest experts of each row in one call."""
    whole = fuse(graph, ((RENORMALISED, _build),), 3)
    rest = fuse(graph, ((TOPK, _build),))
    refused = (*whole.refused, *rest.refused)
    return Outcome(whole.matches + rest.matches, refused, whole.saved + rest.saved)


def _build(found: Match) -> str:
    renormalise = found.nodes[0] is not found.captures["topk"]
    topk, logits, likely = (found.captures[name] for name in ("topk", "logits", "likely"))
    reason = _differs(topk, logits, likely)
    if reason:
        return reason
    target: Any = FUSED[likely.target].default
    made = call(topk, target, logits, int(found.captures["top_k"]), renormalise)
    weights, ids = item(made, 0), item(made, 1)
    wide = call(ids.next, aten.to.dtype, ids, torch.int64)
    if renormalise:
        _take_out(found.nodes[0], weights)
    for one in list(topk.users):
        replace(one, (weights, wide)[place_of(one)])
    return ""


def _take_out(quotient: Node, weights: Node) -> None:
    """Put the weights in place of a quotient, which may have been written in place."""
    sources = quotient.all_input_nodes
    quotient.replace_all_uses_with(weights)
    quotient.graph.erase_node(quotient)
    for one in reversed(sources):
        prune(one)


def _differs(topk: Node, logits: Node, likely: Node) -> str:
    _, top_k, dim, largest, ordered = call_arguments(topk)
    if not isinstance(top_k, int) or not (largest and ordered):
        return f"{topk} is not of the k largest in order"
    if len(value(logits).shape) != 2 or dim not in (-1, 1):
        return f"{topk} does not run over the rows of a matrix"
    dtype = value(likely).dtype
    return "" if dtype == torch.float32 else f"{likely} gives {dtype}, the operator fp32"


FUSE_MOE_ROUTER = builtin(
    "fuse_moe_router", fuse_moe_router, needs=("vcc::topk_softmax", "vcc::topk_sigmoid")
)
