"""From a settled request to what is traced: the decoder's step, or a factory's module."""

from __future__ import annotations

import torch

from vcc.cache.errors import UsageError
from vcc.engine.config.modes import CompileMode
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.models.build_module import made_by
from vcc.engine.models.checkpoint_forward import CheckpointRef
from vcc.engine.models.lora.spec import lora_of
from vcc.engine.models.traced_keys import binding_info, is_traced
from vcc.engine.op_routes import op_choice
from vcc.engine.ops.register import load_ops
from vcc.engine.request import Settled
from vcc.engine.trace.checkpoint_forward import forward_trace
from vcc.engine.trace.decoder import StepShape, decoder_trace
from vcc.engine.trace.module import module_trace
from vcc.engine.trace.trace import TraceRequest


def made_module(settled: Settled) -> torch.nn.Module | None:
    """The module of a factory, by the user's code; None where the request names no factory.

    A build for a GPU calls this before torch believes in one.

    Raises:
        ModelError: the factory fails.
    """
    factory = settled.request.source.factory
    own = factory is not None and not isinstance(factory, CheckpointRef)
    return made_by(factory) if own and factory is not None else None


def trace_request(
    settled: Settled, made: torch.nn.Module | None = None, *, whole: bool = False
) -> TraceRequest:
    """What to trace for a request.

    Args:
        settled: the request.
        made: of `made_module`, to be traced for torch's default device.
        whole: attention of a model in a directory is a call of torch's own function.

    Raises:
        ModelError: a factory fails or its inputs are not declared.
    """
    load_ops()
    source, dtype = settled.request.source, DTYPES[torch_name(settled)]
    if is_traced(source):
        binding_info(source)  # weights that are not the model's are refused before the work
    if source.kind == "decoder":
        shape, lora = step_shape(settled), lora_of(settled.model)
        return decoder_trace(source.spec, dtype, op_choice(settled), shape, lora)
    if source.factory is None:
        raise UsageError(f"{source.name} names no factory")
    if isinstance(source.factory, CheckpointRef):
        return forward_trace(source.factory, source.shapes, dtype, whole=whole)
    once = settled.resolved.config.mode is CompileMode.DYNAMO_TRACE_ONCE
    if made is not None:
        return module_trace(made, source.shapes, dtype, once=once, absent=True)
    return module_trace(made_by(source.factory), source.shapes, dtype, once=once)


def torch_name(settled: Settled) -> str:
    """The settled dtype under torch's name."""
    if settled.model.dtype is None:
        raise UsageError("the request has no dtype", "it was not settled")
    return settled.model.dtype.torch_name


def step_shape(settled: Settled) -> StepShape:
    """The settled limits of a step."""
    model = settled.model
    block, length = model.block_size or 1, model.max_model_len or 1
    return StepShape(
        max_tokens=model.max_num_batched_tokens or 1,
        max_seqs=model.max_num_seqs or 1,
        block_size=block,
        max_blocks_per_seq=-(-length // block),
    )
