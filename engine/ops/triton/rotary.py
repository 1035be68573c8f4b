"""Rotary position embedding in Triton: halves paired (NeoX), possibly of only the first values."""

from __future__ import annotations

import triton
import triton.language as tl

from vcc.engine.ops.triton.quant import cached


@triton.jit
def turn(
    x,
    out,
    cosine,
    sine,
    scales,
    HEADS: tl.constexpr,
    HEAD_LANES: tl.constexpr,
    HALF: tl.constexpr,
    LANES: tl.constexpr,
    REST_LANES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """Rotate one row of heads from `x` to `out`, which point to its first value.

    Where `out` is fp8 it holds the values of x's type over the first of `scales`, as `cached` does.
    """
    head, lane = tl.arange(0, HEAD_LANES), tl.arange(0, LANES)
    known = (head < HEADS)[:, None]
    inside = known & (lane < HALF)[None, :]
    place = head[:, None] * HEAD_DIM + lane[None, :]
    low = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(x + place + HALF, mask=inside, other=0.0).to(tl.float32)
    first = low * cosine[None, :] - high * sine[None, :]
    second = high * cosine[None, :] + low * sine[None, :]
    low = cached(first.to(x.dtype.element_ty), scales, 0, out.dtype.element_ty)
    tl.store(out + place, low, mask=inside)
    high = cached(second.to(x.dtype.element_ty), scales, 0, out.dtype.element_ty)
    tl.store(out + place + HALF, high, mask=inside)
    if 2 * HALF < HEAD_DIM:
        after = 2 * HALF + tl.arange(0, REST_LANES)
        tail = known & (after < HEAD_DIM)[None, :]
        place = head[:, None] * HEAD_DIM + after[None, :]
        rest = tl.load(x + place, mask=tail, other=0.0)
        tl.store(out + place, cached(rest, scales, 0, out.dtype.element_ty), mask=tail)


@triton.jit
def rotary_embedding(
    q,
    k,
    cos,
    sin,
    q_out,
    k_out,
    HEADS: tl.constexpr,
    HEAD_LANES: tl.constexpr,
    KV_HEADS: tl.constexpr,
    KV_LANES: tl.constexpr,
    HALF: tl.constexpr,
    LANES: tl.constexpr,
    REST_LANES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """Rotate row `program_id(0)` of dense q [T, HEADS*D] and k [T, KV_HEADS*D].

    cos and sin are fp32 [T, HALF]; lanes are powers of two that cover their counts.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    cosine = tl.load(cos + row * HALF + lane, mask=lane < HALF, other=0.0).to(tl.float32)
    sine = tl.load(sin + row * HALF + lane, mask=lane < HALF, other=0.0).to(tl.float32)
    home = row * (HEADS * HEAD_DIM)
    turn(
        q + home, q_out + home, cosine, sine, None,
        HEADS, HEAD_LANES, HALF, LANES, REST_LANES, HEAD_DIM,
    )  # fmt: skip
    home = row * (KV_HEADS * HEAD_DIM)
    turn(
        k + home, k_out + home, cosine, sine, None,
        KV_HEADS, KV_LANES, HALF, LANES, REST_LANES, HEAD_DIM,
    )  # fmt: skip
