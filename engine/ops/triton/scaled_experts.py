"""Gated experts with fp8 weights in Triton: tensor cores multiply fp8, sums and scales are fp32.

Tiles of pairs are those of `experts.expert_tiles`. Sums leave the tensor cores every BLOCK values,
as in `scaled.py`. Weights are the left operand: their columns fill it whatever the rows are.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _row_scale(
    x_scale, row, owner, at, BLOCKS: tl.constexpr, MOVING: tl.constexpr, ROWS: tl.constexpr
):
    """Factors of the rows of a tile: one of the expert, one a row, or one a block of a row."""
    if MOVING == 0:
        scale = tl.zeros((ROWS,), tl.float32) + tl.load(x_scale + owner)
    elif MOVING == 1:
        scale = tl.load(x_scale + row)
    else:
        scale = tl.load(x_scale + row * BLOCKS + at)
    return scale


@triton.jit
def _part(total, w, a, by_row, w_scale, BY_BLOCK: tl.constexpr, BLOCK: tl.constexpr):
    """total + w @ a.T, of blocks that have factors of their own, or none."""
    if BY_BLOCK:
        part = tl.dot(w, tl.trans(a))
        total += part * tl.load(w_scale)[:, None] * by_row[None, :]
    else:
        total = tl.dot(w, tl.trans(a), total, max_num_imprecise_acc=BLOCK)
    return total


@triton.jit
def scaled_expert_up(
    x, gate_up, x_scale, w_scale, slots, owners, inner,
    SHARE: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, MOVING: tl.constexpr,
    BY_BLOCK: tl.constexpr, BY_ROW: tl.constexpr, ROWS: tl.constexpr, TILE_N: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """inner [pairs, WIDTH] = silu(gate) * up, for x fp8 [pairs / SHARE, HIDDEN].

    gate_up is fp8 [experts, 2 * WIDTH, HIDDEN]. MOVING 0: x_scale is one of each expert; 1: one of
    each row of x; 2: one of each block of it. w_scale has one of each block of the weights of an
    expert where BY_BLOCK, of each of its rows where BY_ROW, otherwise one of gate and one of up.
    Grid (ceil(WIDTH / TILE_N), tiles).
    """
    owner = tl.load(owners + tl.program_id(1)).to(tl.int64)
    if owner >= 0:
        pair = tl.load(slots + tl.program_id(1) * ROWS + tl.arange(0, ROWS))
        column = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
        depth = tl.arange(0, BLOCK)
        across: tl.constexpr = (HIDDEN + BLOCK - 1) // BLOCK
        # Rows and columns outside repeat one inside: read without a mask, and never stored.
        row = (tl.maximum(pair, 0) // SHARE).to(tl.int64)
        place = tl.minimum(column, WIDTH - 1).to(tl.int64)
        right = x + row[:, None] * HIDDEN + depth[None, :]
        gates = gate_up + owner * (2 * WIDTH * HIDDEN) + place[:, None] * HIDDEN + depth[None, :]
        ups = gates + WIDTH * HIDDEN
        mine = w_scale + owner * ((2 * WIDTH + BLOCK - 1) // BLOCK * across)
        gate_scale = mine + place // BLOCK * across
        up_scale = mine + (WIDTH + place) // BLOCK * across
        gate = tl.zeros((TILE_N, ROWS), tl.float32)
        up = tl.zeros((TILE_N, ROWS), tl.float32)
        for at in tl.range(across, num_stages=STAGES):
            if HIDDEN % BLOCK == 0:
                a = tl.load(right + at * BLOCK)
                g, u = tl.load(gates + at * BLOCK), tl.load(ups + at * BLOCK)
            else:
                held = (at * BLOCK + depth < HIDDEN)[None, :]
                a = tl.load(right + at * BLOCK, mask=held, other=0.0)
                g = tl.load(gates + at * BLOCK, mask=held, other=0.0)
                u = tl.load(ups + at * BLOCK, mask=held, other=0.0)
            by_row = _row_scale(x_scale, row, owner, at, across, MOVING, ROWS)
            gate = _part(gate, g, a, by_row, gate_scale + at, BY_BLOCK, BLOCK)
            up = _part(up, u, a, by_row, up_scale + at, BY_BLOCK, BLOCK)
        if not BY_BLOCK:
            by_row = _row_scale(x_scale, row, owner, 0, across, MOVING, ROWS)
            if BY_ROW:
                by_gate = tl.load(w_scale + owner * (2 * WIDTH) + place)
                by_up = tl.load(w_scale + owner * (2 * WIDTH) + WIDTH + place)
            else:
                by_gate = tl.zeros((TILE_N,), tl.float32) + tl.load(w_scale + owner * 2)
                by_up = tl.zeros((TILE_N,), tl.float32) + tl.load(w_scale + owner * 2 + 1)
            gate = gate * by_gate[:, None] * by_row[None, :]
            up = up * by_up[:, None] * by_row[None, :]
        result = gate * tl.sigmoid(gate) * up
        to = inner + tl.maximum(pair, 0).to(tl.int64)[None, :] * WIDTH + column[:, None]
        inside = (pair >= 0)[None, :] & (column < WIDTH)[:, None]
        tl.store(to, result.to(inner.dtype.element_ty), mask=inside)


@triton.jit
def scaled_expert_down(
    inner, down, x_scale, w_scale, weights, slots, owners, parts,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr, MOVING: tl.constexpr, BY_BLOCK: tl.constexpr,
    BY_ROW: tl.constexpr, ROWS: tl.constexpr, TILE_N: tl.constexpr, BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """parts fp32 [pairs, HIDDEN] = weight * (inner @ down.T), for inner fp8 [pairs, WIDTH].

    down is fp8 [experts, HIDDEN, WIDTH]; scales as in `scaled_expert_up`.
    Grid (ceil(HIDDEN / TILE_N), tiles).
    """
    owner = tl.load(owners + tl.program_id(1)).to(tl.int64)
    if owner >= 0:
        pair = tl.load(slots + tl.program_id(1) * ROWS + tl.arange(0, ROWS))
        column = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
        depth = tl.arange(0, BLOCK)
        across: tl.constexpr = (WIDTH + BLOCK - 1) // BLOCK
        row = tl.maximum(pair, 0).to(tl.int64)
        place = tl.minimum(column, HIDDEN - 1).to(tl.int64)
        right = inner + row[:, None] * WIDTH + depth[None, :]
        left = down + owner * (HIDDEN * WIDTH) + place[:, None] * WIDTH + depth[None, :]
        mine = w_scale + owner * ((HIDDEN + BLOCK - 1) // BLOCK * across)
        mine = mine + place // BLOCK * across
        total = tl.zeros((TILE_N, ROWS), tl.float32)
        for at in tl.range(across, num_stages=STAGES):
            if WIDTH % BLOCK == 0:
                a, w = tl.load(right + at * BLOCK), tl.load(left + at * BLOCK)
            else:
                held = (at * BLOCK + depth < WIDTH)[None, :]
                a = tl.load(right + at * BLOCK, mask=held, other=0.0)
                w = tl.load(left + at * BLOCK, mask=held, other=0.0)
            by_row = _row_scale(x_scale, row, owner, at, across, MOVING, ROWS)
            total = _part(total, w, a, by_row, mine + at, BY_BLOCK, BLOCK)
        if not BY_BLOCK:
            by_row = _row_scale(x_scale, row, owner, 0, across, MOVING, ROWS)
            if BY_ROW:
                by_column = tl.load(w_scale + owner * HIDDEN + place)
            else:
                by_column = tl.zeros((TILE_N,), tl.float32) + tl.load(w_scale + owner)
            total = total * by_column[:, None] * by_row[None, :]
        total = total * tl.load(weights + row)[None, :]
        inside = (pair >= 0)[None, :] & (column < HIDDEN)[:, None]
        tl.store(parts + row[None, :] * HIDDEN + column[:, None], total, mask=inside)
