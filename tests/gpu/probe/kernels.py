"""Triton kernels of the probe's main path: KV write, paged attention, and the matrix product.

Simple and right before fast: one program a row, statistics and sums in fp32. They stand in for the
kernels that issue 2 writes; the table does not know the difference.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def kv_write(k, v, kv_cache, slot_mapping, plane, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """Store row `program_id(0)` of k and v [T, WIDTH] at its slot; slot -1 is skipped.

    `plane` is the number of elements between the K and the V half of the cache.
    """
    row = tl.program_id(0)
    slot = tl.load(slot_mapping + row)
    if slot >= 0:
        lane = tl.arange(0, LANES)
        inside = lane < WIDTH
        home = kv_cache + slot.to(tl.int64) * WIDTH + lane
        tl.store(home, tl.load(k + row * WIDTH + lane, mask=inside), mask=inside)
        tl.store(home + plane, tl.load(v + row * WIDTH + lane, mask=inside), mask=inside)


@triton.jit
def paged_attention(
    q,
    kv_cache,
    block_table,
    seq_lens,
    query_start,
    out,
    plane,
    seqs,
    SCALE: tl.constexpr,
    WINDOW: tl.constexpr,
    CAP: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_LANES: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TABLE_WIDTH: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Causal attention of one row of T (axis 0) with the heads of one KV head (axis 1).

    Lengths are read on the device, so a captured launch is right for any of them. Rows of no
    sequence become zero. Online softmax; every tile holds at least one visible key.
    """
    row, kv_head = tl.program_id(0), tl.program_id(1)
    seq = 0
    for first in range(0, seqs, 64):
        index = first + tl.arange(0, 64)
        ends = tl.load(query_start + 1 + index, mask=index < seqs, other=2147483647)
        seq += tl.sum((ends <= row).to(tl.int32))
    known = seq < seqs
    length = tl.load(seq_lens + seq, mask=known, other=0)
    end = tl.load(query_start + 1 + seq, mask=known, other=row + 1)
    position = tl.where(known, length - end + row, -1)

    lanes, dims = tl.arange(0, GROUP_LANES), tl.arange(0, HEAD_DIM)
    heads = row * (KV_HEADS * GROUP) + kv_head * GROUP + lanes
    places = heads[:, None] * HEAD_DIM + dims[None, :]
    inside = (lanes < GROUP)[:, None]
    query = tl.load(q + places, mask=inside, other=0.0).to(tl.float32)
    best = tl.full((GROUP_LANES,), -float("inf"), tl.float32)
    total = tl.zeros((GROUP_LANES,), tl.float32)
    mixed = tl.zeros((GROUP_LANES, HEAD_DIM), tl.float32)
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(position - WINDOW + 1, 0) // KEYS * KEYS
    for start in range(begin, position + 1, KEYS):
        keys = start + tl.arange(0, KEYS)
        seen = keys <= position
        if WINDOW > 0:
            seen = seen & (position - keys < WINDOW)
        entry = block_table + seq * TABLE_WIDTH + keys // BLOCK_SIZE
        block = tl.load(entry, mask=seen, other=0).to(tl.int64)
        slot = block * BLOCK_SIZE + keys % BLOCK_SIZE
        spots = ((slot * KV_HEADS + kv_head) * HEAD_DIM)[:, None] + dims[None, :]
        key = tl.load(kv_cache + spots, mask=seen[:, None], other=0.0).to(tl.float32)
        value = tl.load(kv_cache + plane + spots, mask=seen[:, None], other=0.0).to(tl.float32)
        score = tl.sum(query[:, None, :] * key[None, :, :], 2) * SCALE
        if CAP > 0:
            score = CAP * (2 * tl.sigmoid(2 * score / CAP) - 1)
        score = tl.where(seen[None, :], score, -float("inf"))
        now = tl.maximum(best, tl.max(score, 1))
        weight, keep = tl.exp(score - now[:, None]), tl.exp(best - now)
        total = total * keep + tl.sum(weight, 1)
        mixed = mixed * keep[:, None] + tl.sum(weight[:, :, None] * value[None, :, :], 1)
        best = now
    result = mixed / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(out + places, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def linear(
    a,
    w,
    c,
    d,
    rows,
    n,
    k,
    HAS_C: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """d [rows, n] = a [rows, k] @ w [n, k].T (+ c [rows, n]); n, k are multiples of the tiles."""
    outer = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    row = tl.program_id(1) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    inner = tl.arange(0, TILE_K)
    inside = (row < rows)[None, :]
    left = w + outer[:, None] * k + inner[None, :]
    right = a + row[None, :] * k + inner[:, None]
    total = tl.zeros((TILE_N, TILE_ROWS), tl.float32)
    for _ in range(0, k, TILE_K):
        part = tl.load(right, mask=inside, other=0.0)
        total = tl.dot(tl.load(left), part, total, input_precision="ieee")
        left += TILE_K
        right += TILE_K
    places = row[None, :] * n + outer[:, None]
    if HAS_C:
        total += tl.load(c + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(d + places, total.to(d.dtype.element_ty), mask=inside)
