"""Removing nodes: what nobody reads goes with what only it read, and nothing goes twice."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.fx import Graph, Node

from vcc.engine.passes.rewrite import is_gone, prune, replace

pytestmark = pytest.mark.filterwarnings("error:erase_node:UserWarning")
aten = torch.ops.aten


def chain() -> tuple[Graph, dict[str, Node]]:
    """x -> a -> b -> c, and a -> d, which is the output."""
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(aten.relu.default, (x,))
    b = graph.call_function(aten.neg.default, (a,))
    c = graph.call_function(aten.abs.default, (b,))
    d = graph.call_function(aten.exp.default, (a,))
    graph.output(d)
    return graph, {"x": x, "a": a, "b": b, "c": c, "d": d}


def left(nodes: dict[str, Node]) -> str:
    return "".join(name for name, node in nodes.items() if not is_gone(node))


def test_a_node_goes_with_what_only_it_read() -> None:
    graph, nodes = chain()
    prune(nodes["b"])
    assert left(nodes) == "xabcd"
    prune(nodes["c"])
    assert left(nodes) == "xad"
    assert next(iter(graph.nodes)) is nodes["x"]
    graph.lint()


@pytest.mark.parametrize("order", ["cb", "cbcb", "cab"])
def test_a_node_that_is_gone_already_is_left_alone(order: str) -> None:
    graph, nodes = chain()
    for name in order:
        prune(nodes[name])
    assert left(nodes) == "xad"
    graph.lint()


def test_neighbours_that_go_one_after_another_are_known_to_be_gone() -> None:
    graph, nodes = chain()
    replace(nodes["d"], nodes["x"])
    assert left(nodes) == "xabc"
    prune(nodes["c"])
    assert left(nodes) == "x"
    assert [node.op for node in graph.nodes] == ["placeholder", "output"]


def test_writes_stay() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    wrote = graph.call_function(aten.relu_.default, (x,))
    part = graph.call_function(operator.getitem, (wrote, 0))
    graph.output(x)
    prune(part)
    assert is_gone(part)
    assert not is_gone(wrote)
