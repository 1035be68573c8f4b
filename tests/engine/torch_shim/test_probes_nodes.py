"""Probes of what partition and passes need of private torch: facts of graph nodes."""

from __future__ import annotations

from typing import Any

import torch
from support.toys import rows, traced
from torch.fx import Graph, Node

from vcc.engine.torch_shim import nodes


def call(target: Any, *args: Any, **kwargs: Any) -> Node:
    """A node that calls `target`, in a graph of its own."""
    return Graph().call_function(target, args, kwargs)


def test_nodes_overload_name() -> None:
    assert nodes.overload_name(torch.ops.aten.add.Tensor) == "aten::add.Tensor"
    assert nodes.overload_name(torch.ops.aten.relu.default) == "aten::relu.default"
    assert nodes.overload_name(len) is None


def test_nodes_foreign_name() -> None:
    assert nodes.foreign_name(torch.ops.toy.mix.default) == "toy::mix"
    assert nodes.foreign_name(torch.ops.toy.mix.scaled) == "toy::mix.scaled"
    for target in (torch.ops.toy.write.default, torch.ops.aten.add.Tensor, len):
        assert nodes.foreign_name(target) == ""


def test_nodes_is_splitting() -> None:
    for name in ("aten::add", "aten::add.Tensor"):
        assert nodes.is_splitting(torch.ops.aten.add.Tensor, frozenset({name}))
    for name in ("aten::add.Scalar", "aten::ad", "add"):
        assert not nodes.is_splitting(torch.ops.aten.add.Tensor, frozenset({name}))


def test_nodes_mutated_arguments() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    aten = torch.ops.aten
    assert nodes.mutated_arguments(graph.call_function(aten.add_.Tensor, (x, y))) == (x,)
    assert nodes.mutated_arguments(graph.call_function(aten.add.Tensor, (x, y))) == ()
    by_name = graph.call_function(aten.add.out, (x, x), {"out": y})
    assert nodes.mutated_arguments(by_name) == (y,)
    many = graph.call_function(aten._foreach_add_.Scalar, ([x, y], 1))
    assert nodes.mutated_arguments(many) == (x, y)


def test_nodes_call_arguments() -> None:
    found = nodes.call_arguments(call(torch.ops.toy.attend.default, 1, 2, out=3))
    assert found == [1, 2, 3, 1.0]


def test_nodes_absent_tensors() -> None:
    """Of what comes last only, and only tensors that are None by default."""
    from vcc.engine.ops.register import load_ops, operator

    load_ops()
    write = operator("vcc::kv_write")
    assert nodes.absent_tensors(write, [1, 2, 3, 4, None]) == 1
    assert nodes.absent_tensors(write, [1, 2, 3, 4, 5]) == 0
    assert nodes.absent_tensors(write, [1, 2, None, 4, 5]) == 0
    assert nodes.absent_tensors(torch.ops.aten.add.Tensor, [1, 2]) == 0
    assert nodes.absent_tensors(len, [None]) == 0


def test_nodes_keyword_only() -> None:
    assert nodes.keyword_only(call(torch.ops.toy.named.default, 1, scale=3.0)) == ["scale"]
    assert nodes.keyword_only(call(torch.ops.toy.named.default, 1, scale=2.0)) == []


def test_nodes_is_registered() -> None:
    assert nodes.is_registered("aten::add")
    assert nodes.is_registered("aten::add.Tensor")
    for name in ("aten::addd", "aten::add.Tensr", "nowhere::add", "add", ""):
        assert not nodes.is_registered(name)


def test_nodes_registered_names() -> None:
    found = nodes.registered_names()
    assert {"aten::add", "toy::attend"} <= set(found)
    assert "aten::add.Tensor" not in found


def test_nodes_is_pure() -> None:
    assert nodes.is_pure(call(torch.ops.aten.add.Tensor, 1, 2))
    for target in (torch.ops.aten.add_.Tensor, torch.ops.aten.rand.default):
        assert not nodes.is_pure(call(target, 1, 2))


def test_nodes_storage_key() -> None:
    """Fake tensors of a trace know their memory."""
    graph = traced(lambda m, x: (x.view(-1), x[1:2], x.clone(), x.t()), {"x": rows()})
    values = {n.name: n.meta.get("val") for n in graph.graph.graph.nodes if n.op != "output"}
    keys = {name: nodes.storage_key(value) for name, value in values.items()}
    assert keys["x"] == keys["view"] == keys["slice_1"] == keys["t"] != keys["clone"]


def test_nodes_is_symbolic() -> None:
    graph = traced(lambda m, x: x * (1 / x.shape[0]), {"x": rows()}, {"x": {0: "T"}})
    found = {n.name: nodes.is_symbolic(n) for n in graph.graph.graph.nodes if n.op != "output"}
    assert [name for name, symbolic in found.items() if not symbolic] == ["x", "mul"]


def test_nodes_is_size() -> None:
    graph = traced(lambda m, x: x * (1 / x.shape[0]), {"x": rows()}, {"x": {0: "T"}})
    sizes = [n.name for n in graph.graph.graph.nodes if nodes.is_size(n)]
    assert len(sizes) == 1
    assert sizes[0].startswith("sym_size")


def test_nodes_is_opaque() -> None:
    assert nodes.is_opaque(call(torch.ops.toy.write.default, 1, 2))
    for target in (torch.ops.toy.mix.default, torch.ops.aten.add_.Tensor, len):
        assert not nodes.is_opaque(call(target, 1, 2))


def test_nodes_is_random() -> None:
    assert nodes.is_random(call(torch.ops.aten.rand_like.default, 1))
    assert nodes.is_random(call(torch.ops.aten.dropout.default, 1, 0.5, True))
    for target in (torch.ops.aten.add.Tensor, len):
        assert not nodes.is_random(call(target, 1, 2))
