"""A piece's graph as an operator list."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.cache.errors import CompileError
from vcc.engine.graphs.op_list import ARITHMETIC, VERSION, OpCall, OpList, may_call
from vcc.engine.torch_shim.nodes import overload_name

LITERALS = (bool, int, str, type(None))

NAMES: Mapping[Callable[..., Any], str] = {
    **{
        getattr(operator, name): name
        for name in (
            *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "getitem"),
            *("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "not_"),
        )
    },
    **{
        getattr(torch, name): name
        for name in ("sym_max", "sym_min", "sym_float", "sym_int", "sym_not", "sym_ite")
    },
}
"""Arithmetic on sizes, by the function that a trace calls."""

OBJECTS: tuple[tuple[type, str], ...] = (
    (torch.dtype, "dtype"),
    (torch.device, "device"),
    (torch.layout, "layout"),
    (torch.memory_format, "memory_format"),
)


def op_list(graph: GraphModule) -> OpList:
    """The calls of a piece in order.

    Raises:
        CompileError: it calls what a list may not hold; names it.
    """
    numbers: dict[Node, int] = {}
    nodes = list(graph.graph.nodes)
    arguments = [node for node in nodes if node.op == "placeholder"]
    for node in arguments:
        numbers[node] = len(numbers)
    calls = []
    for node in nodes:
        if node.op in ("placeholder", "output"):
            continue
        calls.append(_call(node, numbers))
        numbers[node] = len(numbers)
    return OpList(VERSION, len(arguments), calls)


def _call(node: Node, numbers: Mapping[Node, int]) -> OpCall:
    name = _name(node)
    if name is None or not may_call(name):
        raise CompileError(
            f"a piece calls {name or node.target}, which the eager back end does not store",
            "a stored list calls torch's own operators and vcc's only",
            f"name it in splitting_ops, or use backend inductor (node {node.name})",
        )
    kwargs = {key: _argument(value, numbers) for key, value in node.kwargs.items()}
    return OpCall(name, [_argument(value, numbers) for value in node.args], kwargs)


def _name(node: Node) -> str | None:
    if node.op != "call_function" or not callable(node.target):
        return None
    known = NAMES.get(node.target)
    return f"{ARITHMETIC}{known}" if known else overload_name(node.target)


def _argument(value: Any, numbers: Mapping[Node, int]) -> Any:
    if isinstance(value, Node):
        return {"v": numbers[value]}
    if isinstance(value, LITERALS):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, (list, tuple)):
        return [_argument(item, numbers) for item in value]
    for kind, word in OBJECTS:
        if isinstance(value, kind):
            return {word: str(value).removeprefix("torch.")}
    raise CompileError(
        f"an argument of type {type(value).__name__} cannot be stored",
        f"it is {value!r:.80}",
        "use backend inductor",
    )
