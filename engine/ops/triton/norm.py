"""Root-mean-square norms in Triton: one program a row, statistics in fp32, rounded once."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _normed(wide, weight, lane, inside, EPS: tl.constexpr, OFFSET: tl.constexpr, WIDTH):
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / WIDTH + EPS)
    gain = tl.load(weight + lane, mask=inside, other=0.0).to(tl.float32) + OFFSET
    return wide * scale * gain


@triton.jit
def rms_norm(
    x,
    weight,
    out,
    EPS: tl.constexpr,
    OFFSET: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
):
    """out = x / rms(x) * (weight + OFFSET) for row `program_id(0)` of dense x [rows, WIDTH]."""
    lane = tl.arange(0, LANES)
    inside = lane < WIDTH
    place = tl.program_id(0).to(tl.int64) * WIDTH + lane
    wide = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    result = _normed(wide, weight, lane, inside, EPS, OFFSET, WIDTH)
    tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def fused_add_rms_norm(
    x,
    residual,
    weight,
    out,
    total,
    EPS: tl.constexpr,
    OFFSET: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
):
    """total = x + residual, rounded; out = the norm of that rounded sum."""
    lane = tl.arange(0, LANES)
    inside = lane < WIDTH
    place = tl.program_id(0).to(tl.int64) * WIDTH + lane
    left = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    rounded = (left + right).to(total.dtype.element_ty)
    tl.store(total + place, rounded, mask=inside)
    result = _normed(rounded.to(tl.float32), weight, lane, inside, EPS, OFFSET, WIDTH)
    tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)
