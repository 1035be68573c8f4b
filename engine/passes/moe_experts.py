"""Gated experts as transformers writes them with grouped products become `vcc::moe_experts`.

Rows are sorted by expert, multiplied in groups, put back in order, weighted and summed; the
operator does the same from rows, weights and ids. Forms with biases, masks of other ranks' experts
or another activation are left with the reason.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.fusing import RESHAPES, a_tensor, fuse
from vcc.engine.passes.pattern import Capture, Const, Either, Item, Listed, Match, Op, Pattern
from vcc.engine.passes.rewrite import call, prune, value
from vcc.engine.torch_shim.fake import expression

aten, vcc = torch.ops.aten, torch.ops.vcc

SORT = Op((aten.sort.default,), Op(RESHAPES, Capture("ids"), shared=True), shared=True)
ORDER = Item(SORT, 1, shared=True)
SPLITS = (aten.chunk.default, aten.split.Tensor, aten.split_with_sizes.default)


def _ends() -> Op:
    """Where the rows of each expert end."""
    sorted_ids = Op((aten.to.dtype,), Item(SORT, 0))
    counts = Op((aten.histc.default,), sorted_ids, Capture("experts"), Const(0))
    return Op((aten.cumsum.default,), counts, Const(0), shared=True)


def _grouped(rows: Pattern, weight: str, products: tuple[Any, ...]) -> Op:
    turned = Op((aten.transpose.int,), Capture(weight, a_tensor), Const(-2), Const(-1))
    return Op(products, rows, turned, _ends())


def _pattern(products: tuple[Any, ...]) -> Op:
    place = Op((aten.floor_divide.default,), ORDER, Capture("top_k"))
    rows = Op((aten.index.Tensor,), Capture("x", a_tensor), Listed((place,)))
    up = _grouped(rows, "gate_up", products)
    halves = Op(SPLITS, up)
    silu = Op((aten.silu.default,), Item(halves, 0))
    written_out = Op((aten.mul.Tensor,), silu, Item(halves, 1), commutes=True)
    act = Either((Op((vcc.silu_and_mul.default,), up), written_out))
    down = _grouped(act, "down", products)
    flat = Op(RESHAPES, Capture("weights", a_tensor), shared=True)
    sorted_weights = Op((aten.index.Tensor,), flat, Listed((ORDER,)))
    column = Op((aten.unsqueeze.default,), sorted_weights, Const(-1))
    weighted = Op((aten.mul.Tensor,), down, column, commutes=True)
    buffer = Op((aten.empty_like.default,), ORDER)
    count = Op((aten.arange.default,))
    back = Op((aten.index_put_.default,), buffer, Listed((ORDER,)), count)
    ordered = Op((aten.index.Tensor,), weighted, Listed((back,)))
    return Op((aten.sum.dim_IntList,), Op(RESHAPES, ordered, name="pairs"), Const([1]))


def _products() -> tuple[Any, ...]:
    """Grouped products: torch's, and transformers' own where it was imported."""
    theirs = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return (aten._grouped_mm.default, *([theirs.default] if theirs is not None else []))


NEAR = 6
"""Calls that must fit before a miss is told: sums are everywhere."""


def fuse_moe_experts(graph: GraphModule, context: PassContext) -> Outcome:
    """Run the experts of each row in one call."""
    return fuse(graph, ((_pattern(_products()), _build),), NEAR)


def _build(found: Match) -> str:
    root, kept = found.nodes[0], found.captures
    reason = _differs(found)
    if reason:
        return reason
    weights, ids = _as(root, kept["weights"], torch.float32), _as(root, kept["ids"], torch.int32)
    operands = (kept["x"], kept["gate_up"], kept["down"], weights, ids)
    root.replace_all_uses_with(call(root, vcc.moe_experts.default, *operands))
    _remove(found)
    return ""


def _as(before: Node, node: Node, dtype: torch.dtype) -> Node:
    """In this dtype; a cast that only widened it is passed over."""
    source = node.args[0] if node.target is aten.to.dtype else node
    if isinstance(source, Node) and value(source).dtype == dtype:
        return source
    return node if value(node).dtype == dtype else call(before, aten.to.dtype, node, dtype)


def _remove(found: Match) -> None:
    """Take the calls out from the end; one of them writes in place, so that none goes by itself."""
    order = {node: place for place, node in enumerate(found.nodes[0].graph.nodes)}
    for node in sorted(dict.fromkeys(found.nodes), key=lambda one: order[one], reverse=True):
        if node.users:
            continue  # a reshape that others read too
        sources = [one for one in node.all_input_nodes if one not in found.nodes]
        node.graph.erase_node(node)
        for one in sources:
            prune(one)


def _differs(found: Match) -> str:
    kept = found.captures
    x, gate_up, down, ids = (value(kept[name]).shape for name in ("x", "gate_up", "down", "ids"))
    pairs = value(kept["pairs"]).shape
    if not len(x) == len(ids) == 2 or not len(gate_up) == len(down) == len(pairs) == 3:
        return f"{kept['x']} is no matrix of rows"
    if kept["experts"] != gate_up[0] or gate_up[0] != down[0]:
        return f"it counts {kept['experts']} experts, and {kept['gate_up']} has {gate_up[0]}"
    if kept["top_k"] != ids[1] or pairs[1] != ids[1]:
        return f"it takes {kept['top_k']} experts a row, and {kept['ids']} has {ids[1]}"
    if expression(gate_up[1]) != 2 * expression(down[2]):
        return f"{kept['gate_up']} holds no gate and up of {kept['down']}"
    return ""


FUSE_MOE_EXPERTS = builtin("fuse_moe_experts", fuse_moe_experts, needs=("vcc::moe_experts",))
