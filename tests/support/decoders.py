"""Tiny decoders traced under fake weights, as a build does it: no checkpoint, no compiler."""

from __future__ import annotations

from typing import Any

import torch

from support.checkpoints import ARCHITECTURES, OWN_SIZES, SIZES
from vcc.engine.config.types import DEFAULT_SPLITTING_OPS
from vcc.engine.models.architectures import DecoderSpec, spec_of
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.register import load_ops
from vcc.engine.partition.split import split
from vcc.engine.passes.apply import PASSES, apply
from vcc.engine.trace.decoder import StepShape, decoder_trace
from vcc.engine.trace.trace import trace
from vcc.engine.types import Pieces, Traced

LAYERED: dict[str, dict[str, Any]] = {
    "gemma3_text": {"layer_types": None, "sliding_window_pattern": 2},
    "smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 2},
    "qwen2_moe": {"mlp_only_layers": None, "decoder_sparse_step": 2},
}
"""Settings by layer of `support.checkpoints`, as a rule for any number of layers."""

SHAPE = StepShape(max_tokens=256, max_seqs=16, block_size=8, max_blocks_per_seq=8)


def spec(arch: str, layers: int, **fields: Any) -> DecoderSpec:
    """A tiny decoder of one of the families of `support.checkpoints`."""
    config = {"architectures": [ARCHITECTURES[arch]], **SIZES, **OWN_SIZES[arch]}
    found = spec_of(config | LAYERED.get(arch, {}) | {"num_hidden_layers": layers} | fields)
    return found.for_length(found.usual_length)


def traced_decoder(
    of: DecoderSpec,
    *,
    dtype: torch.dtype = torch.float32,
    ops: frozenset[str] = frozenset(),
    shape: StepShape = SHAPE,
) -> Traced:
    """Trace a decoder and run the passes."""
    load_ops()
    graph = trace(decoder_trace(of, dtype, OpChoice(ops), shape))
    apply(graph, PASSES)
    return graph


def decoder_pieces(arch: str, layers: int, **fields: Any) -> Pieces:
    """The pieces of a tiny decoder, cut where builds cut by default."""
    return split(traced_decoder(spec(arch, layers, **fields)), DEFAULT_SPLITTING_OPS, ())
