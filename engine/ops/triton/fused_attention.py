"""Attention of whole rows in Triton: scores are made, weighed and summed tile by tile.

No score is ever written: each program holds a tile of queries and runs over the keys, with the
softmax of what it has seen so far (Milakov and Gimelshein, "Online normalizer calculation for
softmax", arXiv 1805.02867).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _rows(base, row, stride, stop, SIZE: tl.constexpr, LANES: tl.constexpr, BOUNDED: tl.constexpr):
    """[rows, LANES] values, zeros behind SIZE and, where BOUNDED, from row `stop` on."""
    dim = tl.arange(0, LANES)
    place = base + row.to(tl.int64)[:, None] * stride + dim[None, :]
    if BOUNDED:
        found = tl.load(place, mask=(row < stop)[:, None] & (dim < SIZE)[None, :], other=0.0)
    elif SIZE < LANES:
        found = tl.load(place, mask=(dim < SIZE)[None, :], other=0.0)
    else:
        found = tl.load(place)
    return found


@triton.jit
def _masked(
    score, mask, row, key, m_row, keys,
    MASK: tl.constexpr, MASK_ROWS: tl.constexpr, MASK_KEYS: tl.constexpr, BOUNDED: tl.constexpr,
):  # fmt: skip
    """Scores where a mask is true (MASK 1), or what it adds to them (MASK 2)."""
    place = mask + (key * MASK_KEYS)[None, :]
    held = (key < keys)[None, :]
    if MASK_ROWS:
        place = place + row.to(tl.int64)[:, None] * m_row
        held = held & (row >= 0)[:, None]
    found = tl.load(place, mask=held, other=0) if BOUNDED else tl.load(place)
    if MASK == 1:
        score = tl.where(found != 0, score, -float("inf"))
    else:
        score = score + found.to(tl.float32)
    return score


@triton.jit
def _attend(
    query, peak, total, mixed, k, v, mask, row, begin, end, keys, k_row, v_row, m_row,
    SCALE: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, DIMS: tl.constexpr,
    VALUE_DIMS: tl.constexpr, MASK: tl.constexpr, MASK_ROWS: tl.constexpr,
    MASK_KEYS: tl.constexpr, CAUSAL: tl.constexpr, BOUNDED: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """The softmax so far and after keys begin.. end, which are `keys` at most where BOUNDED."""
    LOG2E: tl.constexpr = 1.4426950408889634
    # What is added to a score must not be multiplied: the least float is a usual mask.
    PLAIN: tl.constexpr = (MASK == 2) | (SCALE <= 0.0)
    UNIT: tl.constexpr = SCALE * LOG2E
    for start in range(begin, end, TILE_N):
        key = start + tl.arange(0, TILE_N)
        x = _rows(k, key, k_row, keys, HEAD_DIM, DIMS, BOUNDED)
        y = _rows(v, key, v_row, keys, VALUE_DIM, VALUE_DIMS, BOUNDED)
        score = tl.dot(query, tl.trans(x), input_precision="ieee")
        if PLAIN:
            score = score * SCALE
        if MASK > 0:
            score = _masked(score, mask, row, key, m_row, keys, MASK, MASK_ROWS, MASK_KEYS, BOUNDED)
        if BOUNDED:
            seen = (key < keys)[None, :]
            if CAUSAL:
                seen = seen & (key[None, :] <= row[:, None])
            score = tl.where(seen, score, -float("inf"))
        if PLAIN:
            now = tl.maximum(peak, tl.max(score, 1))
            base = tl.where(now == -float("inf"), 0.0, now)
            weight = tl.exp2((score - base[:, None]) * LOG2E)
            keep = tl.exp2((peak - base) * LOG2E)
        else:
            # Scaled after the maximum: the product and the difference are one instruction.
            now = tl.maximum(peak, tl.max(score, 1) * UNIT)
            base = tl.where(now == -float("inf"), 0.0, now)
            weight = tl.exp2(score * UNIT - base[:, None])
            keep = tl.exp2(peak - base)
        total = total * keep + tl.sum(weight, 1)
        mixed = mixed * keep[:, None]
        mixed = tl.dot(weight.to(y.dtype), y, mixed, input_precision="ieee")
        peak = now
    return peak, total, mixed


STRIDES = (
    *("q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row"),
    *("m_batch", "m_head", "m_row", "o_batch", "o_head", "o_row"),
)
"""Elements from one batch, head and row to the next, of each tensor in turn."""


@triton.jit(do_not_specialize=["tokens", "keys", "heads", *STRIDES])
def fused_attention(
    q, k, v, mask, out, tokens, keys, heads,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    m_batch, m_head, m_row, o_batch, o_head, o_row,
    SCALE: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    DIMS: tl.constexpr, VALUE_DIMS: tl.constexpr, MASK: tl.constexpr, MASK_ROWS: tl.constexpr,
    MASK_KEYS: tl.constexpr, CAUSAL: tl.constexpr, Q_UNIT: tl.constexpr, K_UNIT: tl.constexpr,
    V_UNIT: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """out [B, heads, tokens, VALUE_DIM] = softmax(q k^T SCALE + mask) v; fp32 inside.

    q is [B, heads, tokens, HEAD_DIM], k and v have heads / GROUP heads and `keys` rows; the values
    of a row lie side by side, all else by strides, which are multiples of UNIT elements. MASK is 0
    for none, 1 for true where a key is seen, 2 for what is added; MASK_ROWS says whether its rows
    differ, MASK_KEYS is its stride of keys. A row that sees no key is zero.
    Grid (ceil(tokens / TILE_M) * B * heads,).
    """
    # tl.cast, as torch 2.11 looks for what a kernel writes with its integers as constants.
    tiles = tl.cast((tokens + TILE_M - 1) // TILE_M, tl.int32)
    tile, one = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    batch, head = tl.cast(one // heads, tl.int64), tl.cast(one % heads, tl.int64)
    shared = head // GROUP
    q += tl.multiple_of(batch * q_batch + head * q_head, Q_UNIT)
    k += tl.multiple_of(batch * k_batch + shared * k_head, K_UNIT)
    v += tl.multiple_of(batch * v_batch + shared * v_head, V_UNIT)
    mask += batch * m_batch + head * m_head
    q_step = tl.multiple_of(tl.cast(q_row, tl.int64), Q_UNIT)
    k_step = tl.multiple_of(tl.cast(k_row, tl.int64), K_UNIT)
    v_step = tl.multiple_of(tl.cast(v_row, tl.int64), V_UNIT)
    m_step = tl.cast(m_row, tl.int64)

    first = tile * TILE_M
    row = first + tl.arange(0, TILE_M)
    # Rows outside repeat the last one: read without a mask of theirs, and never stored.
    held = tl.minimum(row, tokens - 1)
    query = _rows(q, held, q_step, tokens, HEAD_DIM, DIMS, False)
    peak = tl.full((TILE_M,), -float("inf"), tl.float32)
    total = tl.zeros((TILE_M,), tl.float32)
    mixed = tl.zeros((TILE_M, VALUE_DIMS), tl.float32)
    end = tl.cast(keys, tl.int32)
    whole = end // TILE_N * TILE_N
    if CAUSAL:
        whole = tl.minimum(first + 1, end) // TILE_N * TILE_N
        end = tl.minimum(first + TILE_M, end)
    peak, total, mixed = _attend(
        query, peak, total, mixed, k, v, mask, held, 0, whole, keys, k_step, v_step, m_step,
        SCALE, HEAD_DIM, VALUE_DIM, DIMS, VALUE_DIMS, MASK, MASK_ROWS, MASK_KEYS, CAUSAL, False,
        TILE_N,
    )  # fmt: skip
    peak, total, mixed = _attend(
        query, peak, total, mixed, k, v, mask, held, whole, end, keys, k_step, v_step, m_step,
        SCALE, HEAD_DIM, VALUE_DIM, DIMS, VALUE_DIMS, MASK, MASK_ROWS, MASK_KEYS, CAUSAL, True,
        TILE_N,
    )  # fmt: skip
    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
    dim = tl.arange(0, VALUE_DIMS)
    place = out + batch * o_batch + head * o_head + row.to(tl.int64)[:, None] * o_row + dim[None, :]
    inside = (row < tokens)[:, None] & (dim < VALUE_DIM)[None, :]
    tl.store(place, mixed.to(out.dtype.element_ty), mask=inside)
