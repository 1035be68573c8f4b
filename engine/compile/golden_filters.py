"""Which arguments of a piece are filters of convolutions: a golden draws them by their sums."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from vcc.engine.torch_shim.nodes import call_arguments, overload_name

CONVOLUTIONS = frozenset({"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution"})
"""Operators whose second argument is [channels out, channels in of a group, taps...]."""

TURNING = frozenset({"aten::permute", "aten::contiguous"})
"""Operators that keep what a filter sums, where its first dimension stays."""

TRANSPOSED = 6
"""Where `aten::convolution` says that its filter is the other way round."""


def filters_of(graph: GraphModule) -> frozenset[int]:
    """Places of the inputs that a convolution takes as its filter: as they are, or turned.

    Args:
        graph: of a piece; its placeholders are the piece's arguments in order.
    """
    places = {node: i for i, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
    taken = (_filter(node) for node in graph.graph.nodes if node.op == "call_function")
    sources = {_source(one) for one in taken if one is not None}
    return frozenset(places[one] for one in sources if one in places)


def _source(node: Node) -> Node:
    """What a filter was before its dimensions behind the first were turned."""
    while (overload_name(node.target) or "").split(".")[0] in TURNING:
        values = call_arguments(node)
        of = values[0]
        if not isinstance(of, Node) or (len(values) > 1 and _moves_first(values[1])):
            break
        node = of
    return node


def _moves_first(order: object) -> bool:
    return isinstance(order, (list, tuple)) and order[0] != 0


def _filter(node: Node) -> Node | None:
    name = (overload_name(node.target) or "").split(".")[0]
    if name not in CONVOLUTIONS:
        return None
    values = call_arguments(node)
    turned = name == "aten::convolution" and values[TRANSPOSED]
    return values[1] if isinstance(values[1], Node) and not turned else None
