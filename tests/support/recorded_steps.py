"""Recorded steps as node tables of fills and copies, and batches for them."""

from __future__ import annotations

import numpy as np

from vcc.engine.config.modes import CompileMode, GraphMode
from vcc.engine.config.types import CompilationConfig
from vcc.engine.graphs.recorder.decoder_plan import LOGITS, decoder_recording
from vcc.engine.graphs.recorder.plan import IO, KINDS, Descriptor, Recording
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import (
    NONE,
    READ,
    WRITE,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Region,
    Segment,
    SegmentKind,
    Symbol,
)
from vcc.engine.models.source import open_source
from vcc.engine.runtime.batch import StepBatch, StepLimits

LIMITS = StepLimits(
    max_tokens=8,
    max_seqs=4,
    block_size=16,
    num_blocks=16,
    max_blocks_per_seq=4,
    max_model_len=64,
    vocab=8,
)
CONFIG = CompilationConfig(
    mode=CompileMode.NO_COMPILATION,
    cuda_graph_mode=GraphMode.FULL_DECODE_ONLY,
    capture_sizes=(2, 4),
)
MIXED = Descriptor(8, 4, False)
STEPS = (MIXED, Descriptor(4, 4, True), Descriptor(2, 2, True))


def recording() -> Recording:
    spec = open_source("demo").spec
    return decoder_recording(spec, {"w": (4, 4)}, {}, "float32", LIMITS, CONFIG)


def pointer(kind: int, at: int, region: int, offset: int) -> Param:
    return Param(ParamKind.POINTER, kind, at, region, offset)


def table(found: Recording, descriptor: Descriptor, extra: int = 0) -> bytes:
    """Logits all say which table it is; the first row also begins with the first token's id."""
    offsets = {slot.name: slot.offset for slot in found.io}
    bits = int(np.float32(descriptor.tokens + descriptor.uniform / 2).view(np.uint32))
    numbers = [(ParamKind.I32, 8, bits), (ParamKind.I32, 12, 4)]
    numbers += [(ParamKind.I64, 16, LIMITS.vocab * descriptor.seqs), (ParamKind.I64, 24, 1)]
    fill = (
        pointer(WRITE, 0, IO, offsets[LOGITS]),
        *(
            Param(kind, 0, at, NONE, value)
            for kind, at, value in (*numbers, (ParamKind.I64, 32, 0))
        ),
    )
    copy = (
        pointer(WRITE, 0, IO, offsets[LOGITS]),
        pointer(READ, 8, IO, offsets["input_ids"]),
        Param(ParamKind.I64, 0, 16, NONE, 4),
    )
    sizes = {"T": descriptor.tokens, "B": descriptor.seqs, "K": LIMITS.num_blocks}
    regions = [size + extra for size in found.sizes(4096)]
    return encode(
        NodeTable(
            symbols=tuple(Symbol(name, size, size) for name, size in sizes.items()),
            regions=tuple(Region(k, s, alignment=512) for k, s in zip(KINDS, regions, strict=True)),
            tensors=tuple(slot.tensor(region, descriptor) for region, slot in found.slots()),
            nodes=(Node(NodeKind.MEMSET, params=fill), Node(NodeKind.MEMCPY, params=copy)),
            segments=(Segment(SegmentKind.PIECE, "recorded", 2),),
        )
    )


def batch(rows: list[int]) -> StepBatch:
    tokens, seqs = sum(rows), len(rows)
    start = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
    blocks = np.arange(seqs * 4, dtype=np.int32).reshape(seqs, 4)
    positions = np.concatenate([np.arange(count) for count in rows]).astype(np.int32)
    owner = np.repeat(np.arange(seqs), rows)
    return StepBatch(
        input_ids=np.full(tokens, 3, np.int32),
        positions=positions,
        slot_mapping=(blocks[owner, 0] * 16 + positions).astype(np.int32),
        block_table=blocks,
        seq_lens=np.array(rows, np.int32),
        query_start=start,
        logits_index=start[1:] - np.int32(1),
        uniform=all(count == 1 for count in rows),
    )
