"""Norms and gated activations with float8_e4m3fn results in Triton.

A program holds a tile of a row as [groups, values that share a scale]. The activation is rounded to
its type before it is quantised, as the operators apart would hand it over.
"""

from __future__ import annotations

import triton
import triton.language as tl

MOST = tl.constexpr(448.0)


@triton.jit
def saturated(value):
    """fp32 as fp8e4nv; beyond the largest is the largest, NaN stays."""
    low = tl.where(value < -MOST, -MOST, value)  # a comparison with NaN is false: it stays
    return tl.where(low > MOST, MOST, low).to(tl.float8e4nv)


@triton.jit
def as_fp8(value, by):
    """value / by as fp8e4nv, fp32 of one shape; beyond the largest is the largest, NaN stays."""
    return saturated(tl.math.div_rn(value, by))


@triton.jit
def cached(value, scales, AT: tl.constexpr, TYPE: tl.constexpr):
    """What a cache of TYPE holds of values: they themselves, or fp8 over scales[AT]; None is 1."""
    if tl.float8e4nv == TYPE:
        held = value.to(tl.float32)
        if scales is not None:
            held = tl.math.div_rn(held, tl.broadcast_to(tl.load(scales + AT), held.shape))
        found = saturated(held)
    else:
        found = value.to(TYPE)
    return found


@triton.jit
def _quantise(
    value,
    scale,
    out,
    scales,
    place,
    group,
    inside,
    inside_group,
    LEAST: tl.constexpr,
    DYNAMIC: tl.constexpr,
):
    if DYNAMIC:
        most = tl.max(tl.where(inside, tl.abs(value), 0.0), 1)
        bad = tl.max(tl.where(inside & (value != value), 1, 0), 1)
        most = tl.where(bad > 0, float("nan"), tl.where(most < LEAST, LEAST, most))
        share = tl.math.div_rn(most, tl.full(most.shape, MOST, tl.float32))
        tl.store(scales + group, share, mask=inside_group)
        by = tl.broadcast_to(share[:, None], value.shape)
    else:
        by = tl.broadcast_to(tl.load(scale), value.shape)
    tl.store(out + place, as_fp8(value, by), mask=inside)


@triton.jit
def scale_place(row, group):
    """Where the scales of a row lie: scales are [blocks, rows], and rows are programs of axis 0."""
    return group.to(tl.int64) * tl.num_programs(0) + row


@triton.jit
def norm_quant(
    x,
    residual,
    weight,
    scale,
    out,
    scales,
    total,
    EPS: tl.constexpr,
    OFFSET: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP_LANES: tl.constexpr,
    BLOCK_LANES: tl.constexpr,
    LEAST: tl.constexpr,
    ADD: tl.constexpr,
    DYNAMIC: tl.constexpr,
):
    """Row `program_id(0)` of dense x [rows, WIDTH]; with ADD, total = x + residual comes first."""
    row = tl.program_id(0).to(tl.int64)
    group, lane = tl.arange(0, GROUP_LANES), tl.arange(0, BLOCK_LANES)
    column = group[:, None] * BLOCK + lane[None, :]
    inside = (lane < BLOCK)[None, :] & (column < WIDTH)
    place = row * WIDTH + column
    wide = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        right = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
        rounded = (wide + right).to(total.dtype.element_ty)
        tl.store(total + place, rounded, mask=inside)
        wide = rounded.to(tl.float32)
    root = tl.rsqrt(tl.sum(tl.sum(wide * wide, 1), 0) / WIDTH + EPS)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32) + OFFSET
    normed = (wide * root * gain).to(x.dtype.element_ty).to(tl.float32)
    groups = scale_place(row, group)
    inside_group = group * BLOCK < WIDTH
    _quantise(normed, scale, out, scales, place, groups, inside, inside_group, LEAST, DYNAMIC)


@triton.jit
def act(gate, ACT: tl.constexpr):
    """0: silu; 1: gelu by the error function; 2: gelu by tanh."""
    if ACT == 0:
        found = gate * tl.sigmoid(gate)
    elif ACT == 1:
        found = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    else:  # (1 + tanh z) / 2 is the sigmoid of 2 z
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        found = gate * tl.sigmoid(2.0 * inner)
    return found


@triton.jit
def gated_quant(
    x,
    scale,
    out,
    scales,
    ACT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP_LANES: tl.constexpr,
    BLOCK_LANES: tl.constexpr,
    LEAST: tl.constexpr,
    DYNAMIC: tl.constexpr,
):
    """act(x[:, :WIDTH]) * x[:, WIDTH:] of row `program_id(0)`; axis 1 covers GROUP_LANES groups."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUP_LANES + tl.arange(0, GROUP_LANES)
    lane = tl.arange(0, BLOCK_LANES)
    column = group[:, None] * BLOCK + lane[None, :]
    inside = (lane < BLOCK)[None, :] & (column < WIDTH)
    home = x + row * (2 * WIDTH) + column
    gate = tl.load(home, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(home + WIDTH, mask=inside, other=0.0).to(tl.float32)
    made = (act(gate, ACT) * up).to(x.dtype.element_ty).to(tl.float32)
    groups = scale_place(row, group)
    inside_group = group * BLOCK < WIDTH
    place = row * WIDTH + column
    _quantise(made, scale, out, scales, place, groups, inside, inside_group, LEAST, DYNAMIC)
