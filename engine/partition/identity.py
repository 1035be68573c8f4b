"""Identity of a piece: everything that steers its generated code, as readable text.

Two pieces of equal identity compile to equal source. The text holds the nodes with overload,
all arguments and nested graphs; each argument's dtype, sizes, strides, device and whether it is
written; size symbols renamed in order of appearance, with range and hint; and the options of
the build (passes with versions, target, compiler settings).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.cache.digest import Digest
from vcc.cache.errors import CompileError
from vcc.engine.tensor_bytes import tensor_bytes
from vcc.engine.torch_shim.nodes import mutated_arguments, overload_name
from vcc.engine.torch_shim.triton_nodes import is_triton_launch, launch_keywords
from vcc.engine.types import PieceSymbol, TensorSpec

PLAIN = (bool, int, float, complex, str, type(None))
TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)


def identity_text(
    graph: GraphModule,
    arguments: Sequence[TensorSpec],
    symbols: Sequence[PieceSymbol],
    options: Sequence[tuple[str, str]],
) -> str:
    """The identity of a piece as lines of text.

    Raises:
        CompileError: a node holds a value that has no canonical text.
    """
    # Quoted, so that no value can look like a line of its own.
    lines = [f"option {label!r} = {value!r}" for label, value in options]
    lines += [f"symbol {s.name} in [{s.low}, {s.high}] hint {s.hint}" for s in symbols]
    written = _written(graph)
    lines += [
        f"argument {index} {spec.dtype} {list(spec.shape)} dense {spec.device}"
        f"{' written' if index in written else ''}"
        for index, spec in enumerate(arguments)
    ]
    lines += _graph_lines(graph, "")
    return "\n".join(lines) + "\n"


def identity_of(text: str) -> str:
    """SHA-256 of the identity text, in hex."""
    return Digest.of(text.encode()).hex


def _written(graph: GraphModule) -> frozenset[int]:
    order = {n: i for i, n in enumerate(n for n in graph.graph.nodes if n.op == "placeholder")}
    return frozenset(
        order[arg] for node in graph.graph.nodes for arg in mutated_arguments(node) if arg in order
    )


def _graph_lines(graph: GraphModule, indent: str) -> Iterator[str]:
    numbers = {node: index for index, node in enumerate(graph.graph.nodes)}
    for node, number in numbers.items():
        args = _text(node.args, numbers)
        given = launch_keywords(node) if is_triton_launch(node) else node.kwargs
        kwargs = ", ".join(f"{k}={_text(v, numbers)}" for k, v in sorted(given.items()))
        yield f"{indent}%{number} = {node.op} {_target(node)} {args} {{{kwargs}}}"
        nested = _nested(graph, node)
        if isinstance(nested, GraphModule):
            yield from _graph_lines(nested, indent + "  ")
        elif isinstance(nested, torch.Tensor):
            yield f"{indent}  tensor {nested.dtype} {list(nested.shape)} {_digest(nested)}"


def _nested(graph: GraphModule, node: Node) -> Any:
    if node.op != "get_attr":
        return None
    value: Any = graph
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


def _digest(value: torch.Tensor) -> str:
    return Digest.of(tensor_bytes(value).tobytes()).hex


def _target(node: Node) -> str:
    if node.op == "get_attr":
        return "attribute"
    if node.op in ("placeholder", "output"):
        return node.op
    name = overload_name(node.target)
    if name is not None:
        return name
    return f"{getattr(node.target, '__module__', '?')}.{getattr(node.target, '__qualname__', '?')}"


def _text(value: Any, numbers: dict[Node, int]) -> str:
    if isinstance(value, Node):
        return f"%{numbers[value]}"
    if isinstance(value, PLAIN):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, TORCH):
        return f"{type(value).__name__}:{value}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(item, numbers) for item in value) + "]"
    if isinstance(value, slice):
        return f"slice{_text((value.start, value.stop, value.step), numbers)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_text(v, numbers)}" for k, v in sorted(value.items())) + "}"
    raise CompileError(
        f"an argument of type {type(value).__name__} has no canonical text",
        "a piece's identity must cover every argument of every node",
        "pass plain values or tensors to the operator",
    )
