"""Attention writes its result in fp8 where that is all that is read: `vcc::paged_attention_quant`.

Static quantisation only: a scale of the result itself is known when all of it is. The pass rewrites
across attention, so that a build with it leaves the graph uncut; it is off at every level.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Gate, Outcome, PassContext, builtin
from vcc.engine.passes.fusing import fuse, moved_before
from vcc.engine.passes.memory import memory_of, writers
from vcc.engine.passes.pattern import Capture, Match
from vcc.engine.passes.quant_forms import FP8, NEAR, static
from vcc.engine.passes.rewrite import call, replace
from vcc.engine.torch_shim.nodes import call_arguments

aten, vcc = torch.ops.aten, torch.ops.vcc


def _attended(given: Any) -> str:
    """The condition of a capture: a buffer that attention alone fills."""
    users = given.users if isinstance(given, Node) else ()
    filled = [one for one in users if one.target is vcc.paged_attention.default]
    fresh = isinstance(given, Node) and given.target is aten.empty_like.default
    return "" if fresh and len(filled) == 1 else f"{given} is no result of attention"


OUT = Capture("out", _attended)


def fuse_attention_quant(graph: GraphModule, context: PassContext) -> Outcome:
    """Quantise the result of attention as it is written."""
    return fuse(graph, ((static(OUT), _build),), NEAR)


def _build(found: Match) -> str:
    root, out, scale = found.nodes[0], found.captures["out"], found.captures["scale"]
    attention = next(user for user in out.users if user.target is vcc.paged_attention.default)
    other = next((u for u in out.users if u is not attention and u not in found.nodes), None)
    if other is not None:
        return f"{out} is also read by {other}"
    if memory_of(scale) in writers(root.graph):
        return f"{scale} is written in place"
    if not moved_before(scale, attention):
        return f"{scale} is made after {attention}"
    _replace(root, out, attention, scale)
    return ""


def _replace(root: Node, out: Node, attention: Node, scale: Node) -> None:
    q, cache, table, lens, starts, _, *rest = call_arguments(attention)
    if rest[-1] is None:  # no scales of the cache
        rest = rest[:-1]
    dense = torch.contiguous_format
    quantised = call(out, aten.empty_like.default, q, dtype=FP8, memory_format=dense)
    inputs = (q, cache, table, lens, starts)
    call(attention, vcc.paged_attention_quant.default, *inputs, quantised, scale, *rest)
    attention.graph.erase_node(attention)
    replace(root, quantised)


FUSE_ATTENTION_QUANT = builtin(
    "fuse_attention_quant",
    fuse_attention_quant,
    needs=("vcc::paged_attention_quant",),
    gate=Gate(targets=("cpu",)),
)
