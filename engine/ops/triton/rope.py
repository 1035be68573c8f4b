"""Rotation joined with what comes before or behind it: norms of heads, and the KV write."""

from __future__ import annotations

import triton
import triton.language as tl

from vcc.engine.ops.triton.quant import cached
from vcc.engine.ops.triton.rotary import turn


@triton.jit
def _normed_and_turned(
    x,
    weight,
    out,
    row,
    cosine,
    sine,
    EPS: tl.constexpr,
    OFFSET: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_LANES: tl.constexpr,
    HALF: tl.constexpr,
    LANES: tl.constexpr,
    REST_LANES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    head, lane = tl.arange(0, HEAD_LANES), tl.arange(0, LANES)
    home = row * (HEADS * HEAD_DIM) + head[:, None] * HEAD_DIM
    known = (head < HEADS)[:, None]
    inside = known & (lane < HALF)[None, :]
    place = home + lane[None, :]
    low = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(x + place + HALF, mask=inside, other=0.0).to(tl.float32)
    squares = tl.sum(low * low, 1) + tl.sum(high * high, 1)
    if 2 * HALF < HEAD_DIM:
        after = 2 * HALF + tl.arange(0, REST_LANES)
        tail = known & (after < HEAD_DIM)[None, :]
        rest = tl.load(x + home + after[None, :], mask=tail, other=0.0).to(tl.float32)
        squares += tl.sum(rest * rest, 1)
    scale = tl.rsqrt(squares / HEAD_DIM + EPS)[:, None]
    gains = lane < HALF
    first = tl.load(weight + lane, mask=gains, other=0.0).to(tl.float32) + OFFSET
    second = tl.load(weight + HALF + lane, mask=gains, other=0.0).to(tl.float32) + OFFSET
    low = (low * scale * first[None, :]).to(x.dtype.element_ty).to(tl.float32)
    high = (high * scale * second[None, :]).to(x.dtype.element_ty).to(tl.float32)
    turned = low * cosine[None, :] - high * sine[None, :]
    tl.store(out + place, turned.to(out.dtype.element_ty), mask=inside)
    turned = high * cosine[None, :] + low * sine[None, :]
    tl.store(out + place + HALF, turned.to(out.dtype.element_ty), mask=inside)
    if 2 * HALF < HEAD_DIM:
        third = tl.load(weight + after, mask=after < HEAD_DIM, other=0.0).to(tl.float32) + OFFSET
        kept = (rest * scale * third[None, :]).to(out.dtype.element_ty)
        tl.store(out + home + after[None, :], kept, mask=tail)


@triton.jit
def qk_norm_rope(
    q,
    k,
    q_weight,
    k_weight,
    cos,
    sin,
    q_out,
    k_out,
    EPS: tl.constexpr,
    OFFSET: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_LANES: tl.constexpr,
    KV_HEADS: tl.constexpr,
    KV_LANES: tl.constexpr,
    HALF: tl.constexpr,
    LANES: tl.constexpr,
    REST_LANES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """Norm and rotate row `program_id(0)` of dense q [T, HEADS*D] and k [T, KV_HEADS*D]."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    cosine = tl.load(cos + row * HALF + lane, mask=lane < HALF, other=0.0).to(tl.float32)
    sine = tl.load(sin + row * HALF + lane, mask=lane < HALF, other=0.0).to(tl.float32)
    _normed_and_turned(
        q, q_weight, q_out, row, cosine, sine,
        EPS, OFFSET, HEADS, HEAD_LANES, HALF, LANES, REST_LANES, HEAD_DIM,
    )  # fmt: skip
    _normed_and_turned(
        k, k_weight, k_out, row, cosine, sine,
        EPS, OFFSET, KV_HEADS, KV_LANES, HALF, LANES, REST_LANES, HEAD_DIM,
    )  # fmt: skip


@triton.jit
def rope_kv_write(
    q,
    k,
    v,
    cos,
    sin,
    kv_cache,
    slot_mapping,
    q_out,
    kv_scale,
    plane,
    HEADS: tl.constexpr,
    HEAD_LANES: tl.constexpr,
    KV_HEADS: tl.constexpr,
    KV_LANES: tl.constexpr,
    HALF: tl.constexpr,
    LANES: tl.constexpr,
    REST_LANES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH_LANES: tl.constexpr,
    Q_STRIDE: tl.constexpr,
    K_STRIDE: tl.constexpr,
    V_STRIDE: tl.constexpr,
):
    """Row `program_id(0)`: q rotated to q_out, k rotated and v to their slot; slot -1 is skipped.

    `plane` is the number of elements of the K half of the cache; strides are elements a row.
    `kv_scale` as in kv_write.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    cosine = tl.load(cos + row * HALF + lane, mask=lane < HALF, other=0.0)
    sine = tl.load(sin + row * HALF + lane, mask=lane < HALF, other=0.0)
    turn(
        q + row * Q_STRIDE, q_out + row * (HEADS * HEAD_DIM), cosine, sine, None,
        HEADS, HEAD_LANES, HALF, LANES, REST_LANES, HEAD_DIM,
    )  # fmt: skip
    slot = tl.load(slot_mapping + row)
    if slot >= 0:
        width: tl.constexpr = KV_HEADS * HEAD_DIM
        home = kv_cache + slot.to(tl.int64) * width
        turn(
            k + row * K_STRIDE, home, cosine, sine, kv_scale,
            KV_HEADS, KV_LANES, HALF, LANES, REST_LANES, HEAD_DIM,
        )  # fmt: skip
        every = tl.arange(0, WIDTH_LANES)
        value = tl.load(v + row * V_STRIDE + every, mask=every < width, other=0.0)
        held = cached(value, kv_scale, 1, kv_cache.dtype.element_ty)
        tl.store(home + plane + every, held, mask=every < width)
