"""Source to Traced: export the step under declared size ranges and verify what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import Dim

from vcc.cache.errors import CompileError, VccError
from vcc.engine.torch_shim import export as shim
from vcc.engine.trace.assigned import refused_assignments
from vcc.engine.trace.failure import TRAILER, cannot_trace, narrowing_hint
from vcc.engine.trace.overlaps import refuse_overlaps
from vcc.engine.trace.rows import refuse_mixed_rows
from vcc.engine.trace.scalars import keep_numbers
from vcc.engine.types import Placeholder, Traced

NARROWED = "Constraints violated"
"""How torch.export begins its word on ranges."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A declared dynamic size with its inclusive range."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Everything a trace needs.

    Args:
        module: called with keyword arguments of the names below.
        arguments: example tensors (fake under `mode`), or lists of them.
        dynamic: per argument, dimension to axis name, or axis name and offset (`("B", 1)`).
        axes: the declared ranges.
        constants: real data of buffers that the module computes.
        mode: the fake mode of the examples; None when module and examples are real.
        once: comparisons of sizes go the way of the examples, and what they found out about sizes
            is dropped: the graph stands for every declared size.
        positions: the input that says where tokens are, for a model that was written for one
            sequence and must keep the rows of several apart; empty for any other.
        notes: what the user is told of the module.
    """

    module: torch.nn.Module
    arguments: Mapping[str, Any]
    dynamic: Mapping[str, Mapping[int, str | tuple[str, int]]]
    axes: tuple[Axis, ...]
    constants: Mapping[str, torch.Tensor]
    mode: Any = None
    once: bool = False
    positions: str = ""
    notes: tuple[str, ...] = ()


def trace(request: TraceRequest) -> Traced:
    """Export the module into one graph.

    Raises:
        CompileError: the model cannot be traced, it assigns a buffer anew, a range came out
            narrower than declared, a size depends on data, a constant has no data, or an operator
            reads what it writes.
        ModelError: rows that must stay apart meet.
    """
    request = replace(request, axes=tuple(_traceable(axis) for axis in request.axes))
    dims: dict[str, Any] = {
        axis.name: Dim.AUTO if request.once else Dim(axis.name, min=axis.low, max=axis.high)
        for axis in request.axes
    }
    try:
        with refused_assignments(request.module):
            program = shim.export_step(
                request.module, request.arguments, _dynamic_shapes(request, dims), request.mode
            )
    except VccError:
        raise
    except Exception as error:
        raise _cannot_trace(error, request.axes) from error
    ranges = _ranges_once(program, request) if request.once else _verify_ranges(program, request)
    graph = shim.graph_before_decomposition(program)
    lifted = shim.lifted_constants(program)
    made = {name: one for name, one in lifted.items() if name not in request.constants}
    keep_numbers(graph, shim.placeholders_of(program), made)
    placeholders = _used(graph, shim.placeholders_of(program))
    refuse_overlaps(graph.graph)
    if request.positions:
        refuse_mixed_rows(graph.graph, request.positions)
    return Traced(
        graph=graph,
        placeholders=placeholders,
        ranges=ranges,
        constants=_constants(placeholders, lifted, request),
        notes=(*request.notes, *(_decided(program) if request.once else ())),
    )


def _traceable(axis: Axis) -> Axis:
    """The axis, or for [1, 2] a longer one.

    torch.export reasons as if sizes were at least 2, which would make a constant of this one.
    """
    return Axis(axis.name, 1, 3) if (axis.low, axis.high) == (1, 2) else axis


def _dynamic_shapes(request: TraceRequest, dims: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _dynamic_of(value, request.dynamic.get(name, {}), dims)
        for name, value in request.arguments.items()
    }


def _dynamic_of(value: Any, axes: Mapping[int, str | tuple[str, int]], dims: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_dynamic_of(item, axes, dims) for item in value]
    return {
        dim: dims[axis] if isinstance(axis, str) else dims[axis[0]] + axis[1]
        for dim, axis in axes.items()
    }


def _cannot_trace(error: Exception, axes: Sequence[Axis]) -> CompileError:
    text = str(error).partition(TRAILER)[0].strip()
    if text.startswith(NARROWED):
        return _narrowed(axes, text, shim.guards_behind(error))
    return cannot_trace(error)


def _narrowed(axes: Sequence[Axis], found: str, lines: Sequence[str] = ()) -> CompileError:
    declared = ", ".join(f"{axis.name} in [{axis.low}, {axis.high}]" for axis in axes)
    places = f"\nsizes were compared here: {'; '.join(lines[:5])}" if lines else ""
    return CompileError(
        "tracing narrowed a declared size range",
        f"declared {declared or 'none'}; found {found[:2000]}{places}",
        narrowing_hint(found),
    )


def _data_dependent(maker: str) -> CompileError:
    return CompileError(
        "a size or a number in the model depends on data",
        f"{maker}, for which no buffer can be declared",
        "compute with masks instead, or run eagerly with --compile none",
    )


def _verify_ranges(program: Any, request: TraceRequest) -> dict[str, tuple[int, int]]:
    if maker := shim.data_dependent(program):
        raise _data_dependent(maker)
    found = {str(symbol): (int(r.lower), int(r.upper)) for symbol, r in _root_ranges(program)}
    declared = sorted((axis.low, axis.high) for axis in request.axes)
    if sorted(found.values()) != declared:
        raise _narrowed(request.axes, str(sorted(found.values())))
    return found


def _ranges_once(program: Any, request: TraceRequest) -> dict[str, tuple[int, int]]:
    """The declared ranges, by the symbols that the trace gave to them.

    Raises:
        CompileError: a comparison made a number of a size, or one size of two.
    """
    if maker := shim.data_dependent(program):
        raise _data_dependent(maker)
    found: dict[str, tuple[int, int]] = {}
    for axis in request.axes:
        symbols = {shim.input_size(program, *place) for place in _places(request, axis.name)}
        (symbol, *more) = sorted(symbols, key=str)
        if symbol is None or more or symbol in found:
            raise CompileError(
                f"tracing fixed the size {axis.name}",
                "; ".join(_decided(program)) or "a branch in the model holds for one size only",
                "compare it with < or >, or declare the size as a number",
            )
        found[symbol] = (axis.low, axis.high)
    return found


def _places(request: TraceRequest, axis: str) -> list[tuple[str, int]]:
    """The dimensions that are declared to be of an axis."""
    return [
        (name, dim)
        for name, dims in request.dynamic.items()
        for dim, one in dims.items()
        if one == axis
    ]


def _decided(program: Any) -> tuple[str, ...]:
    return tuple(
        f"traced once: {guard} holds for the example, and is taken to hold for every size"
        for guard in shim.guards_of(program)
    )


def _root_ranges(program: Any) -> list[tuple[Any, Any]]:
    return [(s, r) for s, r in program.range_constraints.items() if s.is_Symbol]


def _used(
    graph: torch.fx.GraphModule, placeholders: tuple[Placeholder, ...]
) -> tuple[Placeholder, ...]:
    """The placeholders without constants that nothing reads, which leave the graph too."""
    nodes = graph.graph.find_nodes(op="placeholder")
    unread = {node.name for node in nodes if not node.users}
    idle = {one.name for one in placeholders if one.role == "constant"} & unread
    for node in nodes:
        if node.name in idle:
            graph.graph.erase_node(node)
    graph.recompile()
    return tuple(one for one in placeholders if one.name not in idle)


def _constants(
    placeholders: tuple[Placeholder, ...],
    lifted: Mapping[str, torch.Tensor],
    request: TraceRequest,
) -> dict[str, torch.Tensor]:
    known = {**lifted, **request.constants}
    wanted = [p.target for p in placeholders if p.role == "constant"]
    if missing := [name for name in wanted if name not in known]:
        raise CompileError(
            f"constant {missing[0]!r} has no data",
            "it is computed while tracing, where tensors hold shapes only",
            "compute it in the module's constructor and keep it as a buffer",
        )
    return {name: known[name].detach().contiguous() for name in wanted}
