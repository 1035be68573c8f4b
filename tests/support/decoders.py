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

SHAPE = StepShape(max_tokens=256, max_seqs=16, block_size=8, max_blocks_per_seq=8)


def spec(arch: str, layers: int, **fields: Any) -> DecoderSpec:
    """A tiny decoder of one of the families of `support.checkpoints`."""
    config = {"architectures": [ARCHITECTURES[arch]], **SIZES, **OWN_SIZES[arch]}
    return spec_of(config | {"num_hidden_layers": layers} | fields)


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
