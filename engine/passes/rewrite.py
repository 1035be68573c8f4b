"""Making and replacing nodes: every new node gets the fake value that later stages read."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from vcc.engine.torch_shim.fake import expression
from vcc.engine.torch_shim.fake_calls import fake_call, hinted
from vcc.engine.torch_shim.nodes import is_pure


def call(before: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A call of an operator, put before a node; its fake value is computed.

    Args:
        before: the new node comes directly before this one.
        target: an overload such as `torch.ops.vcc.rms_norm.default`.
        args, kwargs: nodes and plain values.
    """
    graph = before.graph
    with graph.inserting_before(before):
        node = graph.call_function(target, args, kwargs)
    node.meta["val"] = fake_value(node)
    return node


def fake_value(node: Node) -> Any:
    """What a call gives on the fake values of its arguments."""
    near = next(iter(node.graph.nodes)).meta.get("val")
    target: Any = node.target
    return fake_call(target, near, *_values(node.args), **_values(node.kwargs))


def item(of: Node, index: int) -> Node:
    """One tensor of a call that returns several, put after that call."""
    with of.graph.inserting_after(of):
        node = of.graph.call_function(operator.getitem, (of, index))
    node.meta["val"] = of.meta["val"][index]
    return node


def replace(old: Node, new: Node) -> None:
    """Let everybody who reads `old` read `new`, and remove `old` with what only it read."""
    old.replace_all_uses_with(new)
    prune(old)


def prune(node: Node) -> None:
    """Remove a node that nobody reads, and then what only it read; writes and inputs stay.

    A node that is gone already, with another one that was removed, is left alone.
    """
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if is_gone(one) or one.users or one.op != "call_function" or not is_pure(one):
            continue
        sources = one.all_input_nodes
        one.graph.erase_node(one)
        waiting.extend(source for source in sources if source not in waiting)


def is_gone(node: Node) -> bool:
    """Whether a node was removed from its graph, where its neighbours follow one another then."""
    return node.prev.next is not node


def calls(graph: Graph, *targets: Any) -> Iterator[Node]:
    """All calls of these operators, in order; the graph may be changed meanwhile."""
    wanted = frozenset(targets)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in wanted:
            yield node


def calls_all(graph: Graph) -> list[Node]:
    """All calls in order; the graph may be changed while they are visited."""
    return [node for node in graph.nodes if node.op == "call_function"]


def value(node: Node) -> Any:
    """The fake value of a node."""
    return node.meta["val"]


def bytes_of(of: Node | Any) -> int:
    """Bytes of a node's tensor, or of a fake one, at the example sizes of the trace."""
    tensor = value(of) if isinstance(of, Node) else of
    if not isinstance(tensor, torch.Tensor):
        return 0
    return math.prod(hinted(size) for size in tensor.shape) * tensor.element_size()


def same_sizes(left: Any, right: Any) -> bool:
    """Whether two tensors (nodes or fakes) have equal sizes for every step; adds no guard."""
    return _expressions(left, "shape") == _expressions(right, "shape")


def same_strides(left: Any, right: Any) -> bool:
    """Whether two tensors (nodes or fakes) have equal sizes and strides; adds no guard."""
    return same_sizes(left, right) and _expressions(left, "stride") == _expressions(right, "stride")


def _expressions(of: Any, what: str) -> list[Any]:
    tensor = value(of) if isinstance(of, Node) else of
    return [expression(size) for size in (tensor.shape if what == "shape" else tensor.stride())]


def _values(given: Any) -> Any:
    if isinstance(given, Node):
        return value(given)
    if isinstance(given, (list, tuple)):
        return type(given)(_values(one) for one in given)
    if isinstance(given, dict):
        return {name: _values(one) for name, one in given.items()}
    return given
