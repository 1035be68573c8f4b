"""Trace requests for the built-in decoder: the step interface under fake tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from vcc.cache.errors import ModelError
from vcc.engine.graphs.dtypes import DTYPES, NAMES
from vcc.engine.models.architectures import DecoderSpec
from vcc.engine.models.constants import constants_of
from vcc.engine.models.lora.module import decoder_with
from vcc.engine.models.lora.spec import LoraSpec
from vcc.engine.models.traced_spec import TracedSpec
from vcc.engine.ops.choice import OpChoice
from vcc.engine.torch_shim.fake import fake_mode
from vcc.engine.trace.trace import Axis, TraceRequest

HINTS = {"T": 16, "B": 4, "K": 32}
"""Example sizes; code is generated for all sizes but laid out with these in mind."""

MOST_BLOCKS = 1 << 24

LAYOUT: Mapping[str, tuple[tuple[str, int], ...]] = {
    "input_ids": (("T", 0),),
    "positions": (("T", 0),),
    "slot_mapping": (("T", 0),),
    "block_table": (("B", 0), ("N", 0)),
    "seq_lens": (("B", 0),),
    "query_start": (("B", 1),),
    "logits_index": (("B", 0),),
}
"""Dimensions of the small int32 inputs: axis and what is added to it."""

LORA_LAYOUT = {**LAYOUT, "lora_slot": (("T", 0),)}
"""Those of a step with adapters."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """The limits that shape a decoder's step.

    Attributes:
        max_tokens: most rows (T).
        max_seqs: most sequences (B).
        block_size: tokens of a KV block.
        max_blocks_per_seq: width of the block table (N).
    """

    max_tokens: int
    max_seqs: int
    block_size: int
    max_blocks_per_seq: int


def decoder_trace(
    spec: DecoderSpec,
    dtype: torch.dtype,
    ops: OpChoice,
    shape: StepShape,
    lora: LoraSpec | None = None,
) -> TraceRequest:
    """What to trace for a decoder; nothing of its weights is allocated."""
    mode, layout = fake_mode(), LAYOUT if lora is None else LORA_LAYOUT
    most = {"T": shape.max_tokens, "B": shape.max_seqs, "K": MOST_BLOCKS}
    sizes = {axis: min(HINTS[axis], high) for axis, high in most.items()}
    sizes["N"] = shape.max_blocks_per_seq
    # A size with one value only is a constant, not an axis.
    axes = tuple(Axis(name, 1, high) for name, high in most.items() if high > 1)
    names = frozenset(axis.name for axis in axes)
    module, constants = fake_decoder(spec, dtype, ops, mode, lora)
    with mode:
        arguments: dict[str, Any] = {
            name: torch.empty([sizes[axis] + add for axis, add in dims], dtype=torch.int32)
            for name, dims in layout.items()
        }
        cache = spec.kv_shape(sizes["K"], shape.block_size)
        stored = DTYPES[spec.kv_dtype(NAMES[dtype])]
        arguments["kv_caches"] = [torch.empty(cache, dtype=stored) for _ in range(spec.layers)]
    dynamic, traced = _dynamic(layout, names), isinstance(spec, TracedSpec)
    positions = "positions" if traced else ""
    return TraceRequest(module, arguments, dynamic, axes, constants, mode, positions=positions)


def fake_decoder(
    spec: DecoderSpec, dtype: torch.dtype, ops: OpChoice, mode: Any, lora: LoraSpec | None = None
) -> tuple[torch.nn.Module, Mapping[str, torch.Tensor]]:
    """A decoder whose tensors are fake, and the data of the buffers that it computes.

    Raises:
        ModelError: a decoder of `transformers` that cannot be made, or does what no step can.
    """
    if isinstance(spec, TracedSpec):
        from vcc.engine.models.transformers.model import as_empty  # of such decoders only
        from vcc.engine.models.transformers.step import TracedDecoder

        if lora is not None:
            raise ModelError(
                f"adapters are not supported for {spec.architecture}",
                "only built-in decoders have inputs for them",
                "vcc compile --list-models names those",
            )
        traced = TracedDecoder(spec, dtype, ops)
        with mode:
            as_empty(traced)
        return traced, traced.constants
    with mode:
        module = decoder_with(spec, dtype, ops, lora)
    return module, {name: torch.from_numpy(data) for name, data in constants_of(spec).items()}


def _dynamic(
    layout: Mapping[str, tuple[tuple[str, int], ...]], axes: frozenset[str]
) -> dict[str, dict[int, str | tuple[str, int]]]:
    dynamic: dict[str, dict[int, str | tuple[str, int]]] = {
        name: {
            dim: (axis, add) if add else axis
            for dim, (axis, add) in enumerate(dims)
            if axis in axes
        }
        for name, dims in layout.items()
    }
    return dynamic | {"kv_caches": {1: "K"}}
