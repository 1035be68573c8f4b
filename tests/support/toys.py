"""Toy operators and traces: what partition, pass and compile tests cut, rewrite and compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vcc.engine.graphs.program import Program
from vcc.engine.trace.trace import Axis, TraceRequest, trace
from vcc.engine.types import Pieces, Traced


def _attend(q: Tensor, k: Tensor, out: Tensor, scale: float = 1.0) -> None:
    out.copy_(torch.softmax(q @ k.t() * scale, dim=-1) @ k)


def _write(x: Tensor, cache: Tensor) -> None:
    cache.mul_(0.5).add_(x.sum(0))


def _into(x: Tensor, new: Tensor) -> None:
    x.copy_(new)


def _into_both(x: Tensor, y: Tensor, one: Tensor, other: Tensor) -> None:
    x.copy_(one)
    y.copy_(other)


OPS: Mapping[str, Callable[..., Any]] = {
    "attend(Tensor q, Tensor k, Tensor(a!) out, float scale=1.0) -> ()": _attend,
    "write(Tensor x, Tensor(a!) cache) -> ()": _write,
    "mix(Tensor x) -> Tensor": lambda x: x.cumsum(0),
    "mix.scaled(Tensor x, float scale) -> Tensor": lambda x, scale: x.cumsum(0) * scale,
    "pair(Tensor x) -> (Tensor, Tensor)": lambda x: (x + 1, x * x),
    "triple(Tensor x) -> (Tensor, Tensor, Tensor)": lambda x: (x + 1, x * x, -x),
    "named(Tensor x, *, float scale=2.0) -> Tensor": lambda x, scale=2.0: x * scale,
    "listed(Tensor x, int[] sizes) -> Tensor": lambda x, sizes: x.clone(),
    "sized(Tensor x, SymInt size) -> Tensor": lambda x, size: x * size,
    "turn(Tensor x) -> Tensor": lambda x: x.flip(0),
    "turn.donate(Tensor x) -> Tensor": lambda x: x.flip(0),
    "turn_(Tensor(a!) x) -> ()": lambda x: _into(x, x.flip(0)),
    "blend(Tensor x, Tensor y) -> (Tensor, Tensor)": lambda x, y: (x + y, x - y),
    "blend_(Tensor(a!) x, Tensor(b!) y) -> ()": lambda x, y: _into_both(x, y, x + y, x - y),
    "chosen(Tensor x) -> Tensor": lambda x: x[x[:, 0] > 0],
}

_WITHOUT_RESULT = frozenset({"attend", "write", "turn_", "blend_"})


def _meta(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if name in _WITHOUT_RESULT:
        return lambda *_: None
    return function


def _data_dependent(x: Tensor) -> Tensor:
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.shape[1]))


def _define() -> torch.library.Library:
    library = torch.library.Library("toy", "DEF")
    for schema, function in OPS.items():
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        name = schema.partition("(")[0]
        library.impl(name, function, "CPU")
        if name != "chosen":
            library.impl(name, _meta(name, function), "Meta")
    torch.library.register_fake("toy::chosen", _data_dependent, lib=library)
    return library


LIBRARY = _define()
"""Kept: a torch Library takes its operators with it when it is collected."""


def module_of(function: Callable[..., Any], **parts: Any) -> nn.Module:
    """A module whose forward is `function(module, ...)`; `parts` become its members."""
    module: nn.Module = type("Toy", (nn.Module,), {"forward": function})()
    for name, part in parts.items():
        if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
            module.register_buffer(name, part, persistent=False)
        else:
            setattr(module, name, part)
    return module


def traced(
    function: Callable[..., Any] | nn.Module,
    arguments: Mapping[str, Tensor],
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    **parts: Any,
) -> Traced:
    """Trace `function(module, **arguments)`, or a module called with these arguments.

    Args:
        function: what to trace.
        arguments: example tensors by name.
        dynamic: per argument, dimension to axis name.
        ranges: inclusive range of each axis; (1, 64) where it is not given.
        parts: parameters, modules and buffers of the module.
    """
    module = function if isinstance(function, nn.Module) else module_of(function, **parts)
    used = sorted({axis for dims in (dynamic or {}).values() for axis in dims.values()})
    axes = tuple(Axis(name, *(ranges or {}).get(name, (1, 64))) for name in used)
    return trace(TraceRequest(module, arguments, dynamic or {}, axes, {}))


def rows(tokens: int = 6, width: int = 4) -> Tensor:
    """Example activations [tokens, width]."""
    return torch.linspace(-1.0, 1.0, tokens * width).reshape(tokens, width)


def calls_of(program: Program) -> list[str]:
    """What a program calls: "piece" or the op's name, in order."""
    return [call.target if call.kind == "op" else "piece" for call in program.calls]


def code_of(pieces: Pieces) -> list[str]:
    """Operators of every unique piece's graph, copies into buffers left out."""
    return [
        str(node.target)
        for piece in pieces.unique
        for node in piece.graph.graph.nodes
        if node.op == "call_function" and "copy_" not in str(node.target)
    ]


def names_in(values: Sequence[object]) -> list[str]:
    """The names among a call's arguments."""
    return [value for value in values if isinstance(value, str)]
