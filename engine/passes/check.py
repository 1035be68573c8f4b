"""Whether a pass left a graph that the next stage can take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.engine.torch_shim.fake import expression
from vcc.engine.torch_shim.fake_calls import watched


@dataclass(frozen=True, slots=True)
class Interface:
    """What a pass may not change: inputs by name, outputs by dtype and size."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class BrokenGraph(Exception):
    """A graph breaks a rule of the trace."""


def interface_of(graph: GraphModule) -> Interface:
    """The interface of a graph.

    Raises:
        BrokenGraph: it has no output.
    """
    nodes = graph.graph.nodes
    output = next((node for node in nodes if node.op == "output"), None)
    if output is None:
        raise BrokenGraph("the graph has no output")
    inputs = tuple(node.name for node in nodes if node.op == "placeholder")
    outputs = tuple(_geometry(leaf) for leaf in _leaves(output.args))
    return Interface(inputs, outputs)


@contextmanager
def sizes_kept(graph: GraphModule) -> Iterator[None]:
    """Refuse a body that compares sizes, which would make the graph wrong for some of them.

    Raises:
        BrokenGraph: names what it took for granted.
    """
    values = (node.meta.get("val") for node in graph.graph.nodes if node.op == "placeholder")
    first = next((one for one in values if isinstance(one, torch.Tensor)), None)
    with watched(first) as found:
        yield
    if found:
        raise BrokenGraph(
            f"it compared sizes and takes for granted that {', '.join(sorted(set(found)))}; "
            "compare by vcc.engine.passes.rewrite.same_sizes"
        )


def check_graph(graph: GraphModule, before: Interface) -> None:
    """Refuse a graph whose nodes are out of order, lack values, or whose interface changed.

    Raises:
        BrokenGraph: says which node and why.
        RuntimeError: torch's own check fails.
    """
    graph.graph.lint()
    for node in graph.graph.nodes:
        if node.op in ("call_module", "call_method"):
            raise BrokenGraph(f"{node.name} is a {node.op}; a trace calls functions only")
        if node.op == "call_function" and "val" not in node.meta:
            raise BrokenGraph(
                f"{node.name} has no fake value; make nodes by vcc.engine.passes.rewrite.call"
            )
    after = interface_of(graph)
    if after.inputs != before.inputs:
        raise BrokenGraph(f"its inputs are {after.inputs}, and were {before.inputs}")
    if after.outputs != before.outputs:
        raise BrokenGraph(f"its outputs are {after.outputs}, and were {before.outputs}")


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _geometry(leaf: Any) -> str:
    value = leaf.meta.get("val") if isinstance(leaf, Node) else leaf
    if not isinstance(value, torch.Tensor):
        return repr(value)
    sizes = ", ".join(str(expression(size)) for size in value.shape)
    return f"{value.dtype} [{sizes}]"
