"""The rotation of queries and keys goes into the KV write: `vcc::rope_kv_write`.

Rotated keys go straight into the cache. The operator is a cut like `vcc::kv_write`; what attention
reads of the queries lies in a buffer of the step.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.fusing import a_tensor, comes_before, fuse, loose_rows
from vcc.engine.passes.pattern import Capture, Item, Match, Op
from vcc.engine.passes.rewrite import call, replace
from vcc.engine.torch_shim.nodes import call_arguments, is_splitting

aten, vcc = torch.ops.aten, torch.ops.vcc

ROPE = Op(
    (vcc.rotary_embedding.default,),
    Capture("q", a_tensor),
    Capture("k", a_tensor),
    name="rope",
    shared=True,
)
PATTERN = Op((vcc.kv_write.default,), Item(ROPE, 1))

SHAPES_ONLY = (aten.empty_like.default, aten.new_empty.default, aten.sym_size.int)
"""Readers of a tensor's sizes, for which its values need not be there."""


def fuse_rope_kv_write(graph: GraphModule, context: PassContext) -> Outcome:
    """Rotate queries and keys inside the KV write."""
    cuts = frozenset(context.config.splitting_ops or ())
    return fuse(graph, ((PATTERN, lambda found: _build(found, cuts)),))


def _build(found: Match, cuts: frozenset[str]) -> str:
    root, rope = found.nodes[0], found.captures["rope"]
    q, k, cos, sin, head_dim = call_arguments(rope)
    _, v, kv_cache, slots, scale = call_arguments(root)
    reason = _cut_elsewhere(cuts) or _read_early(rope, root) or loose_rows(q) or loose_rows(k)
    if reason:
        return reason
    dense = torch.contiguous_format
    out = call(rope, aten.empty_like.default, q, pin_memory=False, memory_format=dense)
    inputs = (q, k, v, cos, sin, kv_cache, slots, out, head_dim)
    call(root, vcc.rope_kv_write.default, *inputs, *(() if scale is None else (scale,)))
    root.graph.erase_node(root)
    for one in list(rope.users):
        replace(one, out)
    return ""


def _cut_elsewhere(cuts: frozenset[str]) -> str:
    parts = (vcc.kv_write.default, vcc.rope_kv_write.default)
    before, after = (is_splitting(target, cuts) for target in parts)
    return "" if before == after else "splitting_ops name only one of kv_write and rope_kv_write"


def _read_early(rope: Node, root: Node) -> str:
    """Who reads the rotated queries before the KV write."""
    queries = [one for one in rope.users if one.args[1] == 0]
    readers = [user for one in queries for user in one.users if user.target not in SHAPES_ONLY]
    early = next((user for user in readers if comes_before(user, root)), None)
    return "" if early is None else f"{early} reads the rotated queries before the KV write"


FUSE_ROPE_KV_WRITE = builtin(
    "fuse_rope_kv_write", fuse_rope_kv_write, needs=("vcc::rope_kv_write",)
)
