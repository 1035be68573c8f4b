"""What recorded graphs are tried on: made from seeds alone, alike in every process.

Weights and cache are one block of random values repeated, so that any size is filled by copies.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from vcc.engine.graphs.recorder.plan import Descriptor, Recording, Slot
from vcc.engine.graphs.table.layout import DTYPES
from vcc.engine.graphs.table.types import Role

BLOCK = 4 << 20
"""Bytes of the repeated block."""

SCALE = 0.03125
LONGEST = 40
"""Tokens of a tried sequence at most, besides those of the step."""

Array = npt.NDArray[Any]


def block(dtype: str, seed: int) -> Array:
    """`BLOCK` bytes of random values of an element type, as uint8."""
    width = {"float32": 4, "float64": 8}.get(dtype, 2)
    values = (np.random.default_rng(seed).standard_normal(BLOCK // width) * SCALE).astype(
        np.float32
    )
    if width == 4:
        return values.view(np.uint8)
    if width == 8:
        return values.astype(np.float64).view(np.uint8)
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint8)
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def batch(recording: Recording, descriptor: Descriptor) -> dict[str, Array]:
    """Inputs of a step by name, of their sizes in it: a decoder's batch, or random values."""
    names = {slot.name for slot in recording.io}
    if "block_table" in names:
        return decoder_batch(recording, descriptor)
    return {
        slot.name: _values(slot, slot.shape_of(descriptor), seed)
        for seed, slot in enumerate(recording.of_role(Role.INPUT))
    }


def _values(slot: Slot, shape: tuple[int, ...], seed: int) -> Array:
    count = prod(shape)
    if slot.dtype in FLOATS:
        bits = np.resize(block(slot.dtype, 100 + seed), count * DTYPES[slot.dtype])
        return bits.view(FLOATS[slot.dtype]).reshape(shape)
    values = np.random.default_rng(seed).integers(0, 2, count)
    return values.astype(slot.dtype).reshape(shape)


FLOATS = {"float64": "f8", "float32": "f4", "float16": "f2", "bfloat16": "u2"}
"""Numpy's element of the same width; bfloat16 is carried as bits."""


def decoder_batch(recording: Recording, descriptor: Descriptor) -> dict[str, Array]:
    """A batch of a decoder, int32 arrays by name: sequences of many lengths.

    Uniform: one row a sequence. Else rows are dealt out unevenly; the last sequence is padding
    where there is more than one, and the last row where there are enough.
    """
    (logits,) = recording.of_role(Role.OUTPUT)
    vocab = logits.shape[-1]
    rows, seqs = _rows(descriptor)
    table = next(slot for slot in recording.io if slot.name == "block_table")
    own = max(1, min(recording.blocks // max(seqs, 1), table.shape[1]))
    room = own * recording.block_size
    past = [min((7 * b + 3) % LONGEST, max(room - rows[b], 0)) for b in range(seqs)]
    rows = [min(count, room) for count in rows]
    lens = [p + r if r else 0 for p, r in zip(past, rows, strict=True)]
    start = np.zeros(descriptor.seqs + 1, np.int32)
    start[1:] = np.cumsum(rows)
    blocks = np.arange(descriptor.seqs * own, dtype=np.int32).reshape(descriptor.seqs, own)
    made = {name: np.zeros(size, np.int32) for name, size in _sizes(recording, descriptor).items()}
    made["block_table"][:, :own] = blocks % recording.blocks
    made["slot_mapping"][:] = -1
    for b in range(seqs):
        at = np.arange(start[b], start[b + 1])
        position = past[b] + at - start[b]
        made["positions"][at] = position
        made["input_ids"][at] = (at * 31 + b * 7 + 1) % vocab
        place = made["block_table"][b, position // recording.block_size]
        made["slot_mapping"][at] = place * recording.block_size + position % recording.block_size
    made["seq_lens"][:] = lens
    made["query_start"][:] = start
    made["logits_index"][:] = np.maximum(start[1:] - 1, 0)
    return made


def _rows(descriptor: Descriptor) -> tuple[list[int], int]:
    """Rows of each sequence."""
    seqs = descriptor.seqs
    if descriptor.uniform:
        return [1] * seqs, seqs
    used = max(1, min(seqs - 1 if seqs > 1 else 1, 8))
    left = descriptor.tokens - (1 if descriptor.tokens > used + 1 else 0)
    share = [left // used + (1 if b < left % used else 0) for b in range(used)]
    return [*share, *[0] * (seqs - used)], seqs


def _sizes(recording: Recording, descriptor: Descriptor) -> dict[str, tuple[int, ...]]:
    return {slot.name: slot.shape_of(descriptor) for slot in recording.of_role(Role.INPUT)}
