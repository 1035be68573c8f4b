"""Gated activations in Triton: products in fp32, rounded once."""

from __future__ import annotations

import triton
import triton.language as tl

from vcc.engine.ops.triton.quant import act


@triton.jit
def silu_and_mul(x, out, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """out [rows, WIDTH] = silu(x[:, :WIDTH]) * x[:, WIDTH:] of dense x [rows, 2 * WIDTH].

    Axis 0 of the grid is the row, axis 1 covers LANES columns.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    inside = lane < WIDTH
    home = x + row * (2 * WIDTH) + lane
    gate = tl.load(home, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(home + WIDTH, mask=inside, other=0.0).to(tl.float32)
    result = gate * tl.sigmoid(gate) * up
    tl.store(out + row * WIDTH + lane, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def gated(x, out, ACT: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """The same for any activation of `quant.act`."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    inside = lane < WIDTH
    home = x + row * (2 * WIDTH) + lane
    gate = tl.load(home, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(home + WIDTH, mask=inside, other=0.0).to(tl.float32)
    result = act(gate, ACT) * up
    tl.store(out + row * WIDTH + lane, result.to(out.dtype.element_ty), mask=inside)
