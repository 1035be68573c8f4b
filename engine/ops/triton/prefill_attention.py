"""Paged attention of any mix of prompts and decode rows, in Triton: tiles of rows x keys.

A tile holds BLOCK_Q query rows of one sequence with the GROUP heads of one KV head, so keys are
read once for the group. Which sequence a tile belongs to is searched on the device: sequence s
owns the tiles from query_start[s] // BLOCK_Q + s on, so T // BLOCK_Q + B + 1 tiles are enough for
any lengths; the rows behind the last sequence count as one more, without keys.
"""

from __future__ import annotations

import triton
import triton.language as tl

from vcc.engine.ops.triton.decode_attention import capped, key_places, scale_at, settled


@triton.jit
def _owner(query_start, seqs, tile, BLOCK_Q: tl.constexpr, LANES: tl.constexpr):
    """The sequence of a tile; `seqs` for rows behind the last one."""
    seq = 0
    for first in range(1, seqs + 1, LANES):
        index = first + tl.arange(0, LANES)
        start = tl.load(query_start + index, mask=index <= seqs, other=0) // BLOCK_Q + index
        seq += tl.sum(((start <= tile) & (index <= seqs)).to(tl.int32), 0)
    return seq


@triton.jit
def _attend(
    query,
    peak,
    total,
    mixed,
    home,
    plane,
    blocks,
    position,
    begin,
    end,
    kv_scale,
    SCALE: tl.constexpr,
    WINDOW: tl.constexpr,
    CAP: tl.constexpr,
    KV_WIDTH: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Online softmax over the keys begin..end; unmasked when every row sees all of them."""
    dim = tl.arange(0, DIMS)
    inner = tl.arange(0, KEYS) % BLOCK_SIZE * KV_WIDTH
    home_values = home + plane
    key_scale = scale_at(kv_scale, 0)
    for start in range(begin, end, KEYS):
        start = tl.multiple_of(start, KEYS)
        key = start + tl.arange(0, KEYS)
        block, at = key_places(blocks, inner, start, end, KV_WIDTH, BLOCK_SIZE, KEYS, MASKED)
        spot = at[:, None] + dim[None, :]
        if MASKED:
            held = (key < end)[:, None]
            if HEAD_DIM < DIMS:
                held = held & (dim < HEAD_DIM)[None, :]
            keys = tl.load(home + block[:, None] + spot, mask=held, other=0.0)
            values = tl.load(home_values + block[:, None] + spot, mask=held, other=0.0)
        elif HEAD_DIM < DIMS:
            held = (dim < HEAD_DIM)[None, :]
            keys = tl.load(home + block[:, None] + spot, mask=held, other=0.0)
            values = tl.load(home_values + block[:, None] + spot, mask=held, other=0.0)
        else:
            keys = tl.load(home + block[:, None] + spot)
            values = tl.load(home_values + block[:, None] + spot)
        keys, values = keys.to(query.dtype), values.to(query.dtype)
        score = tl.dot(query, tl.trans(keys), input_precision="ieee")
        if kv_scale is not None:
            score = score * key_scale
        unit: tl.constexpr = (1.0 if CAP > 0 else SCALE) * 1.4426950408889634
        if CAP > 0:
            score = capped(score * SCALE, CAP)
        if MASKED:
            seen = key[None, :] <= position[:, None]
            if WINDOW > 0:
                seen = seen & (position[:, None] - key[None, :] < WINDOW)
            score = tl.where(seen, score, -float("inf"))
        # Scaled after the maximum: the product and the difference are one instruction.
        now = tl.maximum(peak, tl.max(score, 1) * unit)
        base = now
        if MASKED:
            base = tl.where(now == -float("inf"), 0.0, now)
        weight, keep = tl.exp2(score * unit - base[:, None]), tl.exp2(peak - base)
        total = total * keep + tl.sum(weight, 1)
        mixed = mixed * keep[:, None]
        mixed = tl.dot(weight.to(values.dtype), values, mixed, input_precision="ieee")
        peak = now
    return peak, total, mixed


@triton.jit(do_not_specialize=["tokens", "seqs"])
def prefill_attention(
    q,
    kv_cache,
    block_table,
    seq_lens,
    query_start,
    out,
    out_scale,
    kv_scale,
    plane,
    tokens,
    seqs,
    SCALE: tl.constexpr,
    WINDOW: tl.constexpr,
    CAP: tl.constexpr,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TABLE_WIDTH: tl.constexpr,
    Q_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    LANES: tl.constexpr,
    KEYS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Causal attention of q [T, H*D] into `out`; every row of `out` is written.

    Program = tile * KV_HEADS + KV head, the last tiles (the longest contexts) first. LANES is a
    power of two, at least BLOCK_Q * GROUP. `out_scale` and WIDE as in `settled`,
    `kv_scale` as in `decode_attention`.
    """
    kv_head = tl.program_id(0) % KV_HEADS
    tile = tokens // BLOCK_Q + seqs - tl.program_id(0) // KV_HEADS
    seq = _owner(query_start, seqs, tile, BLOCK_Q, 128)
    start = tl.load(query_start + seq)
    stop = tl.load(query_start + seq + 1, mask=seq < seqs, other=tokens)
    first = start + (tile - start // BLOCK_Q - seq) * BLOCK_Q
    if first >= stop:
        return
    length = tl.load(seq_lens + seq, mask=seq < seqs, other=0)
    shift = length - stop

    lane, dim = tl.arange(0, LANES), tl.arange(0, DIMS)
    row, head = first + lane // GROUP, kv_head * GROUP + lane % GROUP
    # Lanes behind the tile repeat no row: their position sees nothing.
    real = (row < stop) & (lane < BLOCK_Q * GROUP)
    position = tl.where(real, row + shift, -1)
    inside = real[:, None] & (dim < HEAD_DIM)[None, :]
    place = (head * HEAD_DIM)[:, None] + dim[None, :]
    query = tl.load(q + row.to(tl.int64)[:, None] * Q_STRIDE + place, mask=inside, other=0.0)
    home = kv_cache + kv_head * HEAD_DIM
    blocks = block_table + tl.minimum(seq, seqs - 1).to(tl.int64) * TABLE_WIDTH

    peak = tl.full((LANES,), -float("inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    mixed = tl.zeros((LANES, DIMS), tl.float32)
    end = tl.where(length > 0, tl.minimum(first + BLOCK_Q, stop) + shift, 0)
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(first + shift - WINDOW + 1, 0) // KEYS * KEYS
    else:
        begin = tl.maximum(tl.minimum(first + shift + 1, end), 0) // KEYS * KEYS
        peak, total, mixed = _attend(
            query, peak, total, mixed, home, plane, blocks, position, 0, begin, kv_scale,
            SCALE, WINDOW, CAP, KV_HEADS * HEAD_DIM, HEAD_DIM, DIMS, BLOCK_SIZE, KEYS, False,
        )  # fmt: skip
    peak, total, mixed = _attend(
        query, peak, total, mixed, home, plane, blocks, position, begin, end, kv_scale,
        SCALE, WINDOW, CAP, KV_HEADS * HEAD_DIM, HEAD_DIM, DIMS, BLOCK_SIZE, KEYS, True,
    )  # fmt: skip
    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
    if kv_scale is not None:
        mixed = mixed * scale_at(kv_scale, 1)
    result = settled(mixed, out_scale, WIDE)
    spot = out + row.to(tl.int64)[:, None] * OUT_STRIDE + place
    tl.store(spot, result.to(out.dtype.element_ty), mask=inside)
