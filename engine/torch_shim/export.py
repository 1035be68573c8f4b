"""`torch.export` as vcc uses it, and what it says about the graph's inputs."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram, export
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule
from torch.utils._sympy.symbol import SymT, symbol_is_type

from vcc.engine.graphs.program import Role
from vcc.engine.torch_shim.quiet import export_prints_nothing
from vcc.engine.types import Placeholder

ROLES: Mapping[InputKind, Role] = {
    InputKind.USER_INPUT: "input",
    InputKind.PARAMETER: "weight",
    InputKind.BUFFER: "weight",
    InputKind.CONSTANT_TENSOR: "constant",
}


def export_step(
    module: torch.nn.Module,
    arguments: Mapping[str, Any],
    dynamic_shapes: Mapping[str, Any],
    mode: FakeTensorMode | None,
) -> ExportedProgram:
    """Non-strict export of `module(**arguments)`; under `mode` when its tensors are fake."""
    with mode or nullcontext(), export_prints_nothing():
        return export(
            module, (), dict(arguments), dynamic_shapes=dict(dynamic_shapes), strict=False
        )


def data_dependent(program: ExportedProgram) -> str:
    """The first operator whose result's size or number depends on data; empty without one."""
    kinds = (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)
    found = [s for s in program.range_constraints if s.is_Symbol and symbol_is_type(s, kinds)]
    bound = ((n, n.meta.get("unbacked_bindings")) for n in program.graph.nodes)
    maker = next((str(node.target) for node, symbols in bound if symbols), "an operator")
    return f"{maker} makes {found[0]}" if found else ""


def guards_behind(error: BaseException) -> tuple[str, ...]:
    """Comparisons of sizes that an export made before it failed, each with its line of source."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    values = [value for frame in frames for value in frame.f_locals.values()]
    modes = [value for value in values if isinstance(value, FakeTensorMode)]
    guards = [guard for mode in modes[:1] for guard in getattr(mode.shape_env, "guards", ())]
    return tuple(dict.fromkeys(f"{guard.expr} at {guard.sloc}" for guard in guards))


def guards_of(program: ExportedProgram) -> tuple[str, ...]:
    """Comparisons of sizes that a finished export made, each with its line of source."""
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    modes = (value.fake_mode for value in values if isinstance(value, FakeTensor))
    env = next((mode.shape_env for mode in modes if mode.shape_env is not None), None)
    guards = () if env is None else env.guards
    return tuple(dict.fromkeys(f"{guard.expr} at {guard.sloc}" for guard in guards))


def input_size(program: ExportedProgram, name: str, dim: int) -> str | None:
    """The symbol that stands for a dimension of an input; None where the trace fixed it."""
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name == name:
            size = node.meta["val"].shape[dim]
            known = isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
            return str(size.node.expr) if known else None
    return None


def placeholders_of(program: ExportedProgram) -> tuple[Placeholder, ...]:
    """Name, role and target of each placeholder, in graph order."""
    return tuple(
        Placeholder(
            name=cast(Any, spec.arg).name,
            role=_role(spec),
            target=spec.target or cast(Any, spec.arg).name,
        )
        for spec in program.graph_signature.input_specs
    )


def _role(spec: Any) -> Role:
    if spec.kind == InputKind.BUFFER and not spec.persistent:
        return "constant"
    return ROLES[spec.kind]


def graph_before_decomposition(program: ExportedProgram) -> GraphModule:
    """The graph as traced: in-place writes kept, splitting ops single nodes."""
    return cast(GraphModule, program.graph_module)


def lifted_constants(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Tensors that tracing lifted, and buffers outside the state dict; real data only.

    A fake tensor with no constant behind it is left out: the caller names it.
    """
    found = {k: v for k, v in program.constants.items() if isinstance(v, torch.Tensor)}
    return {name: data for name, value in found.items() if (data := _real(value)) is not None}


def _real(value: torch.Tensor) -> torch.Tensor | None:
    return value.constant if isinstance(value, FakeTensor) else value
