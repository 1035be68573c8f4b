"""A product adds the residual that the norm behind it would add, and the norm reads the sum alone.

A gemm node has an addend. Where `vcc::fused_add_rms_norm` has a product for its x, the sum is made
as the product is written: the norm then waits for one tensor in place of two, of which the residual
was written long before, and writes nothing but its own result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from vcc.engine.graphs.planner.own_ops import own_op
from vcc.engine.graphs.planner.products import held, is_dense
from vcc.engine.passes.rewrite import call, calls_all, prune, same_sizes
from vcc.engine.torch_shim.nodes import call_arguments

aten = torch.ops.aten

PLAIN: Mapping[str, str] = {
    "fused_add_rms_norm": "rms_norm",
    "fused_add_rms_norm_quant": "rms_norm_quant",
    "fused_add_rms_norm_quant_dynamic": "rms_norm_quant_dynamic",
}
"""A norm that adds, whose last result is the sum -> the same of a sum that is there."""


def add_in_products(graph: Graph) -> None:
    """Let products add residuals, in place.

    Args:
        graph: Inductor's, after its own passes; nodes have fake values.
    """
    for node in calls_all(graph):
        plain = PLAIN.get(own_op(node.target))
        if plain is None:
            continue
        x, residual, *rest = call_arguments(node)
        if _adds(x, residual, node):
            total = call(node, aten.addmm.default, residual, *x.args)
            normed = call(node, getattr(torch.ops.vcc, plain).default, total, *rest)
            _hand_on(node, normed, total)
            prune(x)


def _adds(x: Any, residual: Any, reader: Node) -> bool:
    """Whether x is a product of a gemm node that nobody else reads, and residual its addend."""
    if x.target is not aten.mm.default or list(x.users) != [reader] or not held(x):
        return False
    value = residual.meta["val"]
    alike = value.dtype == x.meta["val"].dtype and same_sizes(residual, x)
    return alike and is_dense(value)


def _hand_on(node: Node, normed: Node, total: Node) -> None:
    """Let those who read a norm that adds read the norm and the sum."""
    results = len(node.meta["val"])
    for item in list(node.users):
        index: Any = item.args[1]
        if index == results - 1:
            item.replace_all_uses_with(total)
        elif results == 2:
            item.replace_all_uses_with(normed)
        else:
            item.update_arg(0, normed)
            continue
        node.graph.erase_node(item)
    node.graph.erase_node(node)
