"""Results that are a product and a bias: rounded once, as torch rounds them.

A product of a 16-bit type is rounded before its bias is added, where the sum is used. Inside of a
network that is noise among more. A result of the graph, such as the logits of a classifier, shows
it: the errors of its largest values are half as large again. Such a product is a launch that gives
fp32, and the sum is what is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from vcc.engine.graphs.planner.widened import CONVERT, NARROW
from vcc.engine.graphs.program import Program
from vcc.engine.passes.rewrite import call

aten = torch.ops.aten

VIEWS = frozenset({aten.view.default, aten.reshape.default})


def giving_results(programs: Iterable[Program]) -> frozenset[str]:
    """Ids of the pieces that give a result of a program."""
    return frozenset(
        call.target
        for program in programs
        for call in program.calls
        if call.kind == "piece" and not set(program.outputs).isdisjoint(map(str, call.args))
    )


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
    left, right = total.args[:2]
    for value, bias in ((left, right), (right, left)):
        if not (isinstance(value, Node) and isinstance(bias, Node)) or total.kwargs:
            continue
        product = _behind_views(value)
        if product is not None and bias.op == "placeholder" and bias.meta["val"].dim() == 1:
            return product
    return None


def _behind_views(value: Node) -> Node | None:
    """A product that one reader has, or None."""
    while value.target in VIEWS and len(value.users) == 1:
        value = value.args[0]  # type: ignore[assignment]
    single: Any = value.target is aten.mm.default and len(value.users) == 1
    return value if single else None


def _widen(total: Node) -> None:
    dtype = total.meta["val"].dtype
    left, right = (call(total, CONVERT, one, torch.float32) for one in total.args[:2])
    wide = call(total, aten.add.Tensor, left, right)
    total.replace_all_uses_with(call(total, CONVERT, wide, dtype))
    total.graph.erase_node(total)
