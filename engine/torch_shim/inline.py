"""A call in a traced graph replaced by the graph of a Python function on the same values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from vcc.engine.torch_shim.triton_nodes import is_triton_launch


def traced_call(function: Callable[..., Any], node: Node) -> GraphModule:
    """The graph of `function(*node.args)`: one input for each tensor that the call reads.

    Args:
        function: takes the arguments of the call.
        node: a call with fake values.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    sources = node.all_input_nodes
    values = [source.meta["val"] for source in sources]
    fake = next(one for one in values if isinstance(one, FakeTensor))

    def body(*tensors: Any) -> Any:
        known = dict(zip(sources, tensors, strict=True))
        arguments: Any = map_arg(node.args, lambda one: known[one])
        return function(*arguments)

    with cast("AbstractContextManager[Any]", fake.fake_mode), torch.no_grad():
        return make_fx(body, tracing_mode="real")(*values)


def inline(node: Node, traced: GraphModule, fake_value: Callable[[Node], Any]) -> None:
    """Put the nodes of a traced call in place of it.

    Args:
        node: the call, which goes.
        traced: of `traced_call`, for this call or for one with equal arguments.
        fake_value: computes the value of a new node.
    """
    graph, known = node.graph, {}
    places = iter(node.all_input_nodes)
    with graph.inserting_before(node):
        for one in traced.graph.nodes:
            if one.op == "placeholder":
                known[one] = next(places)
            elif one.op == "output":
                results: Any = map_arg(one.args[0], lambda inner: known[inner])
            else:
                copy = known[one] = graph.node_copy(one, lambda inner: known[inner])
                copy.meta["val"] = None if is_triton_launch(one) else fake_value(copy)
    _replace(node, results)


def _replace(node: Node, results: Any) -> None:
    if isinstance(results, Node):
        node.replace_all_uses_with(results)
    for user in list(node.users):
        if user.target is operator.getitem:
            place: Any = user.args[1]
            user.replace_all_uses_with(results[place])
            node.graph.erase_node(user)
    node.graph.erase_node(node)
