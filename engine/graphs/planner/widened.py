"""Products that are read in fp32 alone: they give fp32, and no sum is rounded in between.

A softmax in fp32 is asked of scores that a product of a 16-bit type has rounded. Its kernel sums in
fp32, as torch's fused attention does, so the rounding is left out where nobody can see it: where
every reader makes fp32 of what it reads, behind views and arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from vcc.engine.passes.rewrite import fake_value

aten = torch.ops.aten

CONVERT: Any = torch.ops.prims.convert_element_type.default
NARROW = frozenset({torch.bfloat16, torch.float16})

VIEWS = frozenset(
    {
        aten.reshape.default,
        aten.view.default,
        aten.unsqueeze.default,
        aten.squeeze.dim,
        aten.permute.default,
    }
)
ARITHMETIC = frozenset(
    {
        aten.mul.Tensor,
        aten.div.Tensor,
        aten.add.Tensor,
        aten.sub.Tensor,
        aten.where.self,
    }
)
"""Scales and masks. Inductor computes them in fp32; their type follows from what they read."""

SIZES = frozenset({aten.sym_size.int})
"""Readers that see no element."""


def reads_in_fp32(product: Node) -> Sequence[Node]:
    """What lies between a 16-bit product and the fp32 values that all are made of it.

    Args:
        product: a call with a fake value.

    Returns:
        Views, arithmetic and conversions in the order of the graph; empty where somebody reads an
        element in another way, or nobody does.
    """
    narrow = product.meta["val"].dtype
    if narrow not in NARROW:
        return ()
    between: set[Node] = set()
    waiting = [product]
    while waiting:
        readers = [one for one in waiting.pop().users if one.target not in SIZES]
        if not readers or not all(_widens(one) or _carries(one, narrow) for one in readers):
            return ()
        waiting.extend(one for one in readers if one not in between and not _widens(one))
        between.update(readers)
    return [node for node in product.graph.nodes if node in between]


def _widens(reader: Node) -> bool:
    """Whether a reader gives fp32, as it is told or as another operand is."""
    if reader.target is CONVERT:
        return reader.args[1] is torch.float32
    return reader.target in ARITHMETIC and reader.meta["val"].dtype is torch.float32


def _carries(reader: Node, narrow: torch.dtype) -> bool:
    """Whether a reader gives the product's type, and would give fp32 of fp32."""
    known = reader.target in VIEWS or reader.target in ARITHMETIC
    return known and reader.meta["val"].dtype is narrow


def carry_fp32(between: Sequence[Node]) -> None:
    """Let the readers of a product that is fp32 now be of that type, in place.

    Args:
        between: of `reads_in_fp32`, asked before the product was replaced.
    """
    for node in between:
        if node.target is CONVERT:
            source: Any = node.args[0]
            node.replace_all_uses_with(source)
            node.graph.erase_node(node)
        else:
            node.meta["val"] = fake_value(node)
