"""Trace requests for encoders and vision models of `transformers`, under fake tensors."""

from __future__ import annotations

import torch

from vcc.engine.models.checkpoint_forward import CheckpointRef
from vcc.engine.models.shapes import InputShape
from vcc.engine.models.transformers.forward import check_positions, forward_module
from vcc.engine.models.transformers.model import as_empty, as_meta
from vcc.engine.torch_shim.fake import fake_mode
from vcc.engine.trace.module import axes_of, example_of
from vcc.engine.trace.trace import TraceRequest


def forward_trace(
    ref: CheckpointRef, shapes: tuple[InputShape, ...], dtype: torch.dtype, *, whole: bool = False
) -> TraceRequest:
    """What to trace for a model in a directory; nothing of its weights is allocated.

    Args:
        ref, shapes, dtype: of the source.
        whole: attention is a call of torch's own function, and not products and a softmax.

    Raises:
        ModelError: the model cannot be made, has no input of a name, or too few positions.
    """
    module = forward_module(ref, dtype, [shape.name for shape in shapes], whole=whole)
    check_positions(ref, module, shapes)
    axes, dynamic = axes_of(shapes)
    constants, mode = as_meta(module), fake_mode()
    with mode:
        as_empty(module)
        arguments = {one.name: example_of(one, dtype) for one in shapes}
    return TraceRequest(module, arguments, dynamic, axes, constants, mode)
