"""Attention of whole rows becomes a launch of a kernel of ours, before Inductor sees it."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from vcc.engine.ops.native_attention import NAME
from vcc.engine.ops.register import load_ops
from vcc.engine.ops.triton.wrapped_attention import attended
from vcc.engine.passes.rewrite import calls, fake_value, prune
from vcc.engine.torch_shim.inline import inline, traced_call
from vcc.engine.torch_shim.triton_nodes import keep_strides

aten = torch.ops.aten

MASK = 3
"""Position of the mask."""


def place_attention(graph: Graph) -> None:
    """Write every call of `vcc::plain_attention` as its launch, in place.

    Args:
        graph: Inductor's, after its own passes; nodes have fake values.
    """
    load_ops()  # a piece of plain operators comes without them
    for node in list(calls(graph, getattr(torch.ops.vcc, NAME).default)):
        _read_once(node)
        known = set(graph.nodes)
        inline(node, traced_call(attended, node), fake_value)
        for made in graph.nodes:
            if made not in known:
                keep_strides(made)
    graph.lint()


def _read_once(node: Node) -> None:
    """A mask that repeats is read where it stands once: the kernel repeats it itself."""
    mask: Any = node.args[MASK]
    while isinstance(mask, Node) and mask.target is aten.expand.default:
        source: Any = mask.args[0]
        node.update_arg(MASK, source)
        prune(mask)
        mask = source
