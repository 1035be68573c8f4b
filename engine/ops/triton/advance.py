"""The head of a decode loop in Triton: the inputs of the next step from the last token."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["seqs"])
def advance(
    token,
    active,
    block_table,
    input_ids,
    positions,
    slot_mapping,
    seq_lens,
    step,
    seqs,
    BLOCK_SIZE: tl.constexpr,
    TABLE_WIDTH: tl.constexpr,
    LANES: tl.constexpr,
):
    """Move each active sequence of a uniform decode on by one token; all tensors are int32 [B].

    An inactive one becomes padding: slot -1, length 0, token 0. Its position and step stay. A
    sequence that has outgrown its block table writes nothing (slot -1). A token below zero is
    -1 - id, as `sample_choose` writes one from logits with NaN or infinity.
    """
    seq = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = seq < seqs
    live = tl.load(active + seq, mask=inside, other=0) != 0
    position = tl.load(positions + seq, mask=inside, other=0) + 1
    held = live & (position // BLOCK_SIZE < TABLE_WIDTH)
    entry = block_table + seq.to(tl.int64) * TABLE_WIDTH + position // BLOCK_SIZE
    block = tl.load(entry, mask=inside & held, other=0)
    slot = tl.where(held, block * BLOCK_SIZE + position % BLOCK_SIZE, -1)
    last = tl.load(token + seq, mask=inside & live, other=0)
    tl.store(input_ids + seq, tl.where(last < 0, -1 - last, last), mask=inside)
    tl.store(slot_mapping + seq, slot, mask=inside)
    tl.store(seq_lens + seq, tl.where(live, position + 1, 0), mask=inside)
    tl.store(positions + seq, position, mask=inside & live)
    tl.store(step + seq, tl.load(step + seq, mask=inside, other=0) + 1, mask=inside & live)
