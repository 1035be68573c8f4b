"""`torch.export` as vcc uses it, and what it says about the graph's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram, export
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule

from vcc.engine.graphs.program import Role
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
    with mode or nullcontext():
        return export(
            module, (), dict(arguments), dynamic_shapes=dict(dynamic_shapes), strict=False
        )


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
