"""Trace requests for any nn.Module made by a factory, with declared input shapes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.models.converted import conversion_note, converted
from vcc.engine.models.shapes import Dim, InputShape, check_declared
from vcc.engine.models.training_mode import training_note
from vcc.engine.models.transformers.model import as_empty, as_meta
from vcc.engine.torch_shim.fake import fake_mode
from vcc.engine.trace.trace import Axis, TraceRequest


def module_trace(
    module: torch.nn.Module,
    shapes: tuple[InputShape, ...],
    dtype: torch.dtype,
    *,
    once: bool = False,
    absent: bool = False,
) -> TraceRequest:
    """What to trace for a module: every dimension of a declared input, fixed or a range.

    Args:
        module: of a factory, on the CPU; it is traced in evaluation mode, and what that changes
            is noted.
        shapes: of its inputs.
        dtype: of its floats.
        once: branches on sizes go the way of the examples, for every size.
        absent: for torch's default device, which need not be there; the module is of no use
            afterwards.

    Raises:
        ModelError: no input shape is declared, or a weight is complex.
    """
    check_declared(shapes)
    told = (training_note(module), conversion_note(module, dtype))
    module = converted(module, dtype).eval()
    axes, dynamic = axes_of(shapes)
    constants = as_meta(module) if absent else dict(module.named_buffers())
    mode = fake_mode() if absent else None
    with mode or nullcontext():
        if absent:
            as_empty(module)
        arguments = {shape.name: example_of(shape, dtype) for shape in shapes}
    notes = tuple(note for note in told if note)
    return TraceRequest(module, arguments, dynamic, axes, constants, mode, once=once, notes=notes)


def axes_of(shapes: tuple[InputShape, ...]) -> tuple[tuple[Axis, ...], dict[str, dict[int, Any]]]:
    """The declared ranges, and which dimension of which input has which."""
    axes: dict[str, Axis] = {}
    dynamic = {}
    for shape in shapes:
        moving = {i: dim for i, dim in enumerate(shape.dims) if dim.dynamic}
        names = {i: dim.axis or f"{shape.name}_{i}" for i, dim in moving.items()}
        axes |= {name: Axis(name, moving[i].low, moving[i].high) for i, name in names.items()}
        dynamic[shape.name] = names
    return tuple(axes.values()), dynamic


def example_of(shape: InputShape, dtype: torch.dtype) -> torch.Tensor:
    """What a trace sees of an input; `dtype` is of inputs that declare none."""
    wanted = DTYPES[shape.dtype] if shape.dtype else dtype
    return torch.zeros([_hint(dim) for dim in shape.dims], dtype=wanted)


def _hint(dim: Dim) -> int:
    if dim.example:
        return dim.example
    return min(dim.high, max(dim.low, 4)) if dim.dynamic else dim.low
