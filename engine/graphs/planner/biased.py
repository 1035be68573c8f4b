"""Results that are a product and a bias: rounded once, as torch rounds them.

A product of a 16-bit type is rounded before its bias is added, where the sum is used. Inside of a
network that is noise among more. A result of the graph, such as the logits of a classifier, shows
it: the errors of its largest values are half as large again. Such a product is a launch that gives
fp32, and the sum is what is rounded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from vcc.engine.graphs.planner.widened import CONVERT, NARROW
from vcc.engine.passes.rewrite import call

aten = torch.ops.aten

VIEWS = frozenset({aten.view.default, aten.reshape.default})


def widen_results(graph: Graph) -> frozenset[Node]:
    """Add biases of results in fp32, in place.

    Args:
        graph: Inductor's, after its own passes; nodes have fake values.

    Returns:
        The products, whose every reader makes fp32 of what it reads now.
    """
    found = {}
    for node in graph.nodes:
        if node.target is aten.add.Tensor and _is_result(node) and (product := _biased(node)):
            found[node] = product
    for total in found:
        _widen(total)
    return frozenset(found.values())


def _is_result(node: Node) -> bool:
    """Whether the graph returns it, and nothing else reads it but by another shape."""
    narrow = node.meta["val"].dtype in NARROW
    return narrow and bool(node.users) and all(_returns(user) for user in node.users)


def _returns(user: Node) -> bool:
    if user.op == "output":
        return True
    return user.target in VIEWS and bool(user.users) and all(_returns(one) for one in user.users)


def _biased(total: Node) -> Node | None:
    """The product of a sum with a bias; None where it is another sum."""
    left, right = total.args
    for value, bias in ((left, right), (right, left)):
        if not total.kwargs and _is_bias(bias) and (product := _behind_views(value)):
            return product
    return None


def _is_bias(value: Any) -> bool:
    placed = isinstance(value, Node) and value.op == "placeholder"
    return placed and value.meta["val"].dim() == 1


def _behind_views(value: Any) -> Node | None:
    """A product that nobody else reads, or None."""
    while isinstance(value, Node) and len(value.users) == 1:
        if value.target is aten.mm.default:
            return value
        if value.target not in VIEWS:
            return None
        value = value.args[0]
    return None


def _widen(total: Node) -> None:
    dtype = total.meta["val"].dtype
    left, right = (call(total, CONVERT, one, torch.float32) for one in total.args)
    wide = call(total, aten.add.Tensor, left, right)
    total.replace_all_uses_with(call(total, CONVERT, wide, dtype))
    total.graph.erase_node(total)
