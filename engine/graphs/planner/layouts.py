"""Fake values that follow a layout which was changed before them in the graph."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch.fx import Graph, Node

from vcc.engine.passes.rewrite import fake_value
from vcc.engine.torch_shim.strides import strides_in

aten = torch.ops.aten

COPYING = {aten.view.default: aten.reshape.default, aten._unsafe_view.default: aten.reshape.default}
"""Views that ask for memory in one order, and what gives the same values of any."""


def follow_layouts(graph: Graph, known: Collection[Node]) -> None:
    """Compute anew what calls give on values that lie otherwise than they did, in place.

    Args:
        graph: nodes have fake values.
        known: nodes whose readers saw them as they are; those of others may not.
    """
    changed = {node for node in graph.nodes if node not in known}
    for node in graph.nodes:
        if node not in known or not any(one in changed for one in node.all_input_nodes):
            continue
        before = node.meta.get("val")
        if before is None or node.op != "call_function":
            continue
        node.target = COPYING.get(node.target, node.target)
        node.meta["val"] = fake_value(node)
        if strides_in(node.meta["val"]) != strides_in(before):
            changed.add(node)
