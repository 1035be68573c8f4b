"""Paged attention of one query row a sequence, in Triton: keys split over programs, then reduced.

The number of splits is computed on the device from the number of sequences, so that one grid
serves every batch: PROGRAMS fill the device, and a batch that fills it alone is not split.
"""

from __future__ import annotations

import triton
import triton.language as tl

from vcc.engine.ops.triton.quant import as_fp8


@triton.jit
def capped(score, CAP: tl.constexpr):
    """CAP * tanh(score / CAP), by an exponential that cannot overflow to NaN."""
    return CAP - 2.0 * CAP / (tl.exp(score * (2.0 / CAP)) + 1.0)


@triton.jit
def key_places(
    blocks,
    at,
    start,
    end,
    KV_WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Elements from the cache's start to each key of start.. (a multiple of KEYS) before end.

    `at` is the place of each key in its block. Where a tile is whole blocks it is the same in every
    tile: it stays out of the loop, and an address costs one multiplication.
    """
    lane = tl.arange(0, KEYS)
    if KEYS % BLOCK_SIZE == 0:
        entry = blocks + start // BLOCK_SIZE + lane // BLOCK_SIZE
    else:
        entry = blocks + (start + lane) // BLOCK_SIZE
        at = (start + lane) % BLOCK_SIZE * KV_WIDTH
    block = tl.load(entry, mask=start + lane < end, other=0) if MASKED else tl.load(entry)
    return block.to(tl.int64) * (BLOCK_SIZE * KV_WIDTH), at


@triton.jit
def settled(value, out_scale, WIDE: tl.constexpr):
    """What is stored of fp32 results: with a scale fp8 of what WIDE, the type of q, has of them."""
    if out_scale is not None:
        wide = value.to(WIDE).to(tl.float32)
        value = as_fp8(wide, tl.broadcast_to(tl.load(out_scale), wide.shape))
    return value


@triton.jit
def scale_at(scales, AT: tl.constexpr):
    """A scale of the cache; 1 where there are none."""
    scale = 1.0
    if scales is not None:
        scale = tl.load(scales + AT)
    return scale


@triton.jit
def split_count(seqs, KV_HEADS: tl.constexpr, PROGRAMS: tl.constexpr):
    """Programs that share the keys of one sequence and KV head."""
    return tl.maximum(PROGRAMS // (seqs * KV_HEADS), 1)


@triton.jit(do_not_specialize=["seqs"])
def decode_attention(
    q,
    kv_cache,
    block_table,
    seq_lens,
    out,
    partial,
    peaks,
    sums,
    out_scale,
    kv_scale,
    plane,
    seqs,
    SCALE: tl.constexpr,
    WINDOW: tl.constexpr,
    CAP: tl.constexpr,
    GROUP: tl.constexpr,
    LANES: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TABLE_WIDTH: tl.constexpr,
    Q_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    PROGRAMS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Row b of q [B, H*D] attends to the keys of sequence b; GROUP heads of a KV head together.

    Writes `out` when keys are not split; else, for each program, its unnormalised sum to
    `partial` [programs, GROUP, DIMS], its largest score (base 2) to `peaks` and the sum of its
    weights to `sums` [programs, GROUP]; all fp32. `plane` as in kv_write, `out_scale` and WIDE as
    in `settled`; the cache's values are multiplied with `kv_scale` [2], of K and of V, if given.
    """
    program = tl.program_id(0)
    splits = split_count(seqs, KV_HEADS, PROGRAMS)
    seq = program // (KV_HEADS * splits)
    if seq >= seqs:
        return
    kv_head, split = program // splits % KV_HEADS, program % splits
    length = tl.load(seq_lens + seq)
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(length - WINDOW, 0) // KEYS * KEYS
    share = tl.cdiv(tl.cdiv(length - begin, KEYS), splits) * KEYS
    begin += split * share
    end = tl.minimum(begin + share, length)

    lane, dim = tl.arange(0, LANES), tl.arange(0, DIMS)
    head = kv_head * GROUP + lane
    inside = (lane < GROUP)[:, None] & (dim < HEAD_DIM)[None, :]
    place = head[:, None] * HEAD_DIM + dim[None, :]
    query = tl.load(q + seq.to(tl.int64) * Q_STRIDE + place, mask=inside, other=0.0)
    blocks = block_table + seq.to(tl.int64) * TABLE_WIDTH
    home = kv_cache + kv_head * HEAD_DIM
    home_values = home + plane
    inner = tl.arange(0, KEYS) % BLOCK_SIZE * (KV_HEADS * HEAD_DIM)
    key_scale = scale_at(kv_scale, 0)

    peak = tl.full((LANES,), -float("inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    mixed = tl.zeros((LANES, DIMS), tl.float32)
    for start in range(begin, end, KEYS):
        key = start + tl.arange(0, KEYS)
        seen = key < end
        if WINDOW > 0:
            seen = seen & (key >= length - WINDOW)
        block, at = key_places(
            blocks, inner, start, end, KV_HEADS * HEAD_DIM, BLOCK_SIZE, KEYS, True
        )
        spot = at[:, None] + dim[None, :]
        held = seen[:, None]
        if HEAD_DIM < DIMS:
            held = held & (dim < HEAD_DIM)[None, :]
        keys = tl.load(home + block[:, None] + spot, mask=held, other=0.0)
        values = tl.load(home_values + block[:, None] + spot, mask=held, other=0.0)
        keys, values = keys.to(query.dtype), values.to(query.dtype)
        score = tl.dot(query, tl.trans(keys), input_precision="ieee") * SCALE
        if kv_scale is not None:
            score = score * key_scale
        if CAP > 0:
            score = capped(score, CAP)
        score = tl.where(seen[None, :], score * 1.4426950408889634, -float("inf"))
        now = tl.maximum(peak, tl.max(score, 1))
        # A tile inside the loop holds a visible key, except before the start of a window.
        base = tl.where(now == -float("inf"), 0.0, now)
        weight, keep = tl.exp2(score - base[:, None]), tl.exp2(peak - base)
        total = total * keep + tl.sum(weight, 1)
        mixed = mixed * keep[:, None]
        mixed = tl.dot(weight.to(values.dtype), values, mixed, input_precision="ieee")
        peak = now
    if splits == 1:
        mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
        if kv_scale is not None:
            mixed = mixed * scale_at(kv_scale, 1)
        result = settled(mixed, out_scale, WIDE)
        home_row = out + seq.to(tl.int64) * OUT_STRIDE
        tl.store(home_row + place, result.to(out.dtype.element_ty), mask=inside)
    else:
        row = program * GROUP + lane
        tl.store(peaks + row, peak, mask=lane < GROUP)
        tl.store(sums + row, total, mask=lane < GROUP)
        share_of_row = partial + row[:, None] * DIMS + dim[None, :]
        tl.store(share_of_row, mixed, mask=(lane < GROUP)[:, None])


@triton.jit(do_not_specialize=["seqs"])
def reduce_attention(
    partial,
    peaks,
    sums,
    out,
    out_scale,
    kv_scale,
    seqs,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    PROGRAMS: tl.constexpr,
    LANES: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Join the splits of head `program_id(0)` (of B*H) into `out`; nothing when there is one.

    LANES splits are read at a time, in order: the result does not depend on timing.
    """
    splits = split_count(seqs, KV_HEADS, PROGRAMS)
    if splits > 1:
        program = tl.program_id(0)
        heads: tl.constexpr = GROUP * KV_HEADS
        seq, head = program // heads, program % heads
        first = (seq * KV_HEADS + head // GROUP) * splits
        dim = tl.arange(0, DIMS)
        peak = -float("inf")
        total = 0.0
        mixed = tl.zeros((DIMS,), tl.float32)
        for start in range(0, splits, LANES):
            lane = start + tl.arange(0, LANES)
            row = (first + lane) * GROUP + head % GROUP
            high = tl.load(peaks + row, mask=lane < splits, other=-float("inf"))
            part = tl.load(sums + row, mask=lane < splits, other=0.0)
            held = (lane < splits)[:, None]
            values = tl.load(partial + row[:, None] * DIMS + dim[None, :], mask=held, other=0.0)
            now = tl.maximum(peak, tl.max(high, 0))
            base = tl.where(now == -float("inf"), 0.0, now)
            weight, keep = tl.exp2(high - base), tl.exp2(peak - base)
            total = total * keep + tl.sum(weight * part, 0)
            mixed = mixed * keep + tl.sum(weight[:, None] * values, 0)
            peak = now
        mixed = mixed / tl.where(total > 0, total, 1.0)
        if kv_scale is not None:
            mixed = mixed * scale_at(kv_scale, 1)
        result = settled(mixed, out_scale, WIDE)
        spot = out + seq.to(tl.int64) * OUT_STRIDE + head * HEAD_DIM + dim
        tl.store(spot, result.to(out.dtype.element_ty), mask=dim < HEAD_DIM)
