"""Between operators and Triton launches: fusions see operators, pieces get launches.

A layer whose back end is Triton is traced into launches, which name their kernels by numbers of
this process. Before fusions run, our own become the operators again that they stand for; after the
last pass those, and what fusions made of them, become launches. Operators that a layer called as
such stay: their kernels are of another back end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from vcc.engine.config.modes import Platform
from vcc.engine.ops.cuda.table import BUILDERS as CSRC
from vcc.engine.ops.register import load_ops
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.rewrite import call, calls_all, fake_value, item, prune
from vcc.engine.torch_shim.inline import inline, traced_call
from vcc.engine.torch_shim.nodes import overload_name
from vcc.engine.torch_shim.triton_nodes import is_triton_launch, launch_arguments, launched_kernel

load_ops()

aten, vcc = torch.ops.aten, torch.ops.vcc
FOLDER = "vcc.engine.ops.triton"

Arguments = Mapping[str, Any]
Lifted = tuple[Any, tuple[Any, ...]]
"""An operator and its arguments."""

NORM, ROWS = ("EPS", "OFFSET"), ("cos", "sin", "HEAD_DIM")

LIFTS: Mapping[str, tuple[Callable[[Arguments], Lifted], tuple[str, ...]]] = {
    f"{FOLDER}.norm:rms_norm": (
        lambda given: (vcc.rms_norm.default, _named(given, "x", "weight", *NORM)),
        ("out",),
    ),
    f"{FOLDER}.norm:fused_add_rms_norm": (
        lambda given: (
            vcc.fused_add_rms_norm.default,
            _named(given, "x", "residual", "weight", *NORM),
        ),
        ("out", "total"),
    ),
    f"{FOLDER}.activation:silu_and_mul": (
        lambda given: (vcc.silu_and_mul.default, _named(given, "x")),
        ("out",),
    ),
    f"{FOLDER}.activation:gated": (
        lambda given: (vcc.gelu_and_mul.default, (*_named(given, "x"), given["ACT"] == 2)),
        ("out",),
    ),
    f"{FOLDER}.rotary:rotary_embedding": (
        lambda given: (vcc.rotary_embedding.default, _named(given, "q", "k", *ROWS)),
        ("q_out", "k_out"),
    ),
}
"""Kernel -> the operator that a launch stands for, and the pointers of its results."""


def _named(given: Arguments, *names: str) -> tuple[Any, ...]:
    """Arguments by name; a copy that only makes rows dense is passed over."""
    return tuple(_laid_out(given[name]) for name in names)


def _laid_out(given: Any) -> Any:
    copied = isinstance(given, Node) and given.target is aten.contiguous.default
    return given.args[0] if copied else given


def lift(graph: Graph) -> int:
    """Write launches of our own kernels as operators; how many there were."""
    lifted = 0
    for node in calls_all(graph):
        if is_triton_launch(node) and launched_kernel(node) in LIFTS:
            lifted += _lift(node)
    return lifted


def _lift(node: Node) -> int:
    stands_for, outs = LIFTS[launched_kernel(node)]
    given = launch_arguments(node)
    results = [given[name] for name in outs]
    if not all(_fresh(one, node) for one in results):
        return 0
    sources = [one for one in node.all_input_nodes if one not in results]
    target, arguments = stands_for(given)
    made = call(node, target, *arguments)
    several = isinstance(made.meta["val"], tuple)
    news = [item(made, at) for at in range(len(outs))] if several else [made]
    node.graph.erase_node(node)
    for old, new in zip(results, news, strict=True):
        old.replace_all_uses_with(new)
        prune(old)
    for one in sources:
        prune(one)
    return 1


def _fresh(out: Any, launch: Node) -> bool:
    """Whether a result lies in memory of its own that nobody takes before the launch."""
    order = {node: place for place, node in enumerate(launch.graph.nodes)}
    return (
        isinstance(out, Node)
        and out.target is aten.new_empty.default
        and all(order[user] >= order[launch] for user in out.users)
    )


def own_calls(graph: Graph) -> frozenset[Node]:
    """The calls of operators that have a Triton kernel."""
    table = kernels()
    return frozenset(node for node in calls_all(graph) if _op(node) in table)


def lower(graph: Graph, kept: frozenset[Node], context: PassContext, lifted: int) -> int:
    """Write operators as launches of our Triton kernels; how many there are.

    Args:
        graph: changed in place.
        kept: calls that a layer made, whose back end is another.
        context: of the build; a CPU's operators stay unless they came as launches, a GPU's never
            where csrc has no kernel of theirs.
        lifted: launches that became operators.
    """
    on_gpu = context.target.platform is Platform.CUDA
    if not lifted and not on_gpu:
        return 0
    table, known, made = kernels(), {}, 0
    whole = frozenset(calls_all(graph)) if kept and not lifted else kept
    for node in calls_all(graph):
        only_triton = on_gpu and _op(node) not in CSRC
        if _op(node) not in table or (node in whole and not only_triton):
            continue
        alike = (_op(node), *(_told(one, node) for one in node.args))
        if alike not in known:
            known[alike] = traced_call(table[_op(node)], node)
        inline(node, known[alike], fake_value)
        made += 1
    return made


def _told(given: Any, node: Node) -> Any:
    """An argument as far as the launches depend on it; equal tensors have equal places."""
    if not isinstance(given, Node):
        return repr(given)
    value = given.meta["val"]
    sizes = (*(str(one) for one in value.shape), *(str(one) for one in value.stride()))
    return (node.all_input_nodes.index(given), str(value.dtype), *sizes)


def _op(node: Node) -> str:
    space, _, name = (overload_name(node.target) or "").partition("::")
    return name.partition(".")[0] if space == "vcc" else ""


def kernels() -> Mapping[str, Callable[..., Any]]:
    """Operator -> function that launches our Triton kernel; empty where Triton is not installed."""
    try:
        from vcc.engine.ops.triton import wrapped, wrapped_experts, wrapped_fused
    except ImportError:
        return {}
    places = (wrapped, wrapped_fused, wrapped_experts)
    return {name: getattr(place, name) for place in places for name in place.OPERATORS}
