"""Clone elimination: copies whose source and result nobody writes, so that they stay equal."""

from __future__ import annotations

from collections.abc import Container

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.memory import memory_of, refresh, writers
from vcc.engine.passes.rewrite import bytes_of, calls, replace, same_strides
from vcc.engine.torch_shim.nodes import StorageKey
from vcc.engine.types import Saved

aten = torch.ops.aten

COPIES = (aten.clone.default, aten.lift_fresh_copy.default)


def eliminate_clones(graph: GraphModule, context: PassContext) -> Outcome:
    """Read the source of a copy in its place where neither is ever written."""
    written = writers(graph.graph)
    matches, refused, saved = 0, [], Saved()
    for node in calls(graph.graph, *COPIES):
        source = node.args[0]
        if not isinstance(source, Node):
            continue
        reason = _needed(node, source, written)
        if reason:
            refused.append(f"{node.name}: {reason}")
            continue
        saved += Saved(2 * bytes_of(node), 1)
        replace(node, source)
        refresh(graph.graph)
        matches += 1
    return Outcome(matches, tuple(refused), saved)


def _needed(node: Node, source: Node, written: Container[StorageKey]) -> str:
    """Why a copy must stay; empty when it need not."""
    for one, what in ((source, "its source"), (node, "its result")):
        if memory_of(one) in written:
            return f"{what} is written in place"
    if not same_strides(node, source):
        return "it changes strides"
    if source.op == "placeholder" and any(user.op == "output" for user in node.users):
        return "the step returns it, and its source is an input"
    return ""


ELIMINATE_CLONES = builtin("eliminate_clones", eliminate_clones)
