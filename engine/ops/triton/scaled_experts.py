"""Gated experts with fp8 weights in Triton: tensor cores multiply fp8, sums and scales are fp32.

Tiles of pairs are those of `experts.expert_tiles`, low up to FEW pairs. Sums leave the tensor cores
every BLOCK values, as in `scaled.py`. Weights are the left operand: their columns fill it whatever
the rows are. Scales of blocks are asked for a block ahead: nothing waits for them.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _by_row(
    x_scale, row, owner, at, ACROSS: tl.constexpr, MOVING: tl.constexpr, ROWS: tl.constexpr
):
    """Factors of the rows of a tile: one of the expert, one a row, or one a block of a row."""
    if MOVING == 0:
        scale = tl.zeros((ROWS,), tl.float32) + tl.load(x_scale + owner)
    elif MOVING == 1:
        scale = tl.load(x_scale + row)
    else:
        scale = tl.load(x_scale + row * ACROSS + tl.minimum(at, ACROSS - 1))
    return scale


@triton.jit
def _by_block(w_scale, column, at, ACROSS: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    """Factors of the columns of a tile at a block; one where WHOLE, as it lies in one block."""
    first = tl.min(column, 0) if WHOLE else column
    return tl.load(w_scale + first // BLOCK * ACROSS + tl.minimum(at, ACROSS - 1))


@triton.jit
def _add(total, w, a, by_row, by_column, BY_BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    """total + w @ a.T, times the factors of the block where each has its own."""
    if not BY_BLOCK:
        total = tl.dot(w, tl.trans(a), total, max_num_imprecise_acc=128)
    elif WHOLE:
        total += tl.dot(w, tl.trans(a)) * (by_column * by_row)[None, :]
    else:
        total += tl.dot(w, tl.trans(a)) * by_column[:, None] * by_row[None, :]
    return total


@triton.jit
def _read(place, at, rows, depth, DEPTH: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    """Block `at` of dense rows; zeros behind their end, and of no `rows` where MASKED."""
    if DEPTH % BLOCK == 0 and not MASKED:
        values = tl.load(place + at * BLOCK)
    elif DEPTH % BLOCK == 0:
        values = tl.load(place + at * BLOCK, mask=rows[:, None], other=0.0)
    else:
        held = (at * BLOCK + depth < DEPTH)[None, :] & rows[:, None]
        values = tl.load(place + at * BLOCK, mask=held, other=0.0)
    return values


@triton.jit
def _up_tile(
    x, gate_up, x_scale, w_scale, slots, owners, inner, program,
    SHARE: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, MOVING: tl.constexpr,
    BY_BLOCK: tl.constexpr, BY_ROW: tl.constexpr, ROWS: tl.constexpr, TILE_N: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One tile of rows and TILE_N columns of both products."""
    wide: tl.constexpr = (WIDTH + TILE_N - 1) // TILE_N
    tile = program // wide
    owner = tl.load(owners + tile).to(tl.int64)
    if owner >= 0:
        pair = tl.load(slots + tile * ROWS + tl.arange(0, ROWS))
        column = program % wide * TILE_N + tl.arange(0, TILE_N)
        depth = tl.arange(0, BLOCK)
        across: tl.constexpr = (HIDDEN + BLOCK - 1) // BLOCK
        whole: tl.constexpr = BLOCK % TILE_N == 0 and WIDTH % BLOCK == 0
        # Columns outside repeat one inside, and are never stored.
        row = (tl.maximum(pair, 0) // SHARE).to(tl.int64)
        place = tl.minimum(column, WIDTH - 1).to(tl.int64)
        right = x + row[:, None] * HIDDEN + depth[None, :]
        gates = gate_up + owner * (2 * WIDTH * HIDDEN) + place[:, None] * HIDDEN + depth[None, :]
        mine = w_scale + owner * ((2 * WIDTH + BLOCK - 1) // BLOCK * across)
        there, every = pair >= 0, column >= 0
        gate = tl.zeros((TILE_N, ROWS), tl.float32)
        up = tl.zeros((TILE_N, ROWS), tl.float32)
        by_row = _by_row(x_scale, row, owner, 0, across, MOVING, ROWS)
        by_gate, by_up = 1.0, 1.0
        if BY_BLOCK:
            by_gate = _by_block(mine, place, 0, across, whole, BLOCK)
            by_up = _by_block(mine, WIDTH + place, 0, across, whole, BLOCK)
        for at in tl.range(across, num_stages=STAGES):
            a = _read(right, at, there, depth, HIDDEN, BLOCK, MASKED)
            g = _read(gates, at, every, depth, HIDDEN, BLOCK, False)
            u = _read(gates + WIDTH * HIDDEN, at, every, depth, HIDDEN, BLOCK, False)
            if BY_BLOCK:
                next_row = _by_row(x_scale, row, owner, at + 1, across, MOVING, ROWS)
                next_gate = _by_block(mine, place, at + 1, across, whole, BLOCK)
                next_up = _by_block(mine, WIDTH + place, at + 1, across, whole, BLOCK)
            gate = _add(gate, g, a, by_row, by_gate, BY_BLOCK, whole)
            up = _add(up, u, a, by_row, by_up, BY_BLOCK, whole)
            if BY_BLOCK:
                by_row, by_gate, by_up = next_row, next_gate, next_up
        if not BY_BLOCK:
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
        inside = there[None, :] & (column < WIDTH)[:, None]
        tl.store(to, result.to(inner.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["pairs"])
def scaled_expert_up(
    x, gate_up, x_scale, w_scale, slots, owners, inner, pairs,
    SHARE: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, MOVING: tl.constexpr,
    BY_BLOCK: tl.constexpr, BY_ROW: tl.constexpr, BLOCK: tl.constexpr, FEW: tl.constexpr,
    FEW_ROWS: tl.constexpr, FEW_STAGES: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
    TILE_N: tl.constexpr,
):  # fmt: skip
    """inner [pairs, WIDTH] = silu(gate) * up, for x fp8 [pairs / SHARE, HIDDEN].

    gate_up is fp8 [experts, 2 * WIDTH, HIDDEN]. MOVING 0: x_scale is one of each expert; 1: one of
    each row of x; 2: one of each block of it. w_scale has one of each block of the weights of an
    expert where BY_BLOCK, of each of its rows where BY_ROW, otherwise one of gate and one of up.
    Grid: tiles * ceil(WIDTH / TILE_N).
    """
    if pairs <= FEW:
        _up_tile(
            x, gate_up, x_scale, w_scale, slots, owners, inner, tl.program_id(0),
            SHARE, HIDDEN, WIDTH, MOVING, BY_BLOCK, BY_ROW,
            FEW_ROWS, TILE_N, BLOCK, FEW_STAGES, True,
        )  # fmt: skip
    else:
        _up_tile(
            x, gate_up, x_scale, w_scale, slots, owners, inner, tl.program_id(0),
            SHARE, HIDDEN, WIDTH, MOVING, BY_BLOCK, BY_ROW, ROWS, TILE_N, BLOCK, STAGES, False,
        )  # fmt: skip


@triton.jit
def _down_tile(
    inner, down, x_scale, w_scale, weights, slots, owners, parts, program,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr, MOVING: tl.constexpr, BY_BLOCK: tl.constexpr,
    BY_ROW: tl.constexpr, ROWS: tl.constexpr, TILE_N: tl.constexpr, BLOCK: tl.constexpr,
    STAGES: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One tile of rows and TILE_N columns of the result."""
    wide: tl.constexpr = (HIDDEN + TILE_N - 1) // TILE_N
    tile = program // wide
    owner = tl.load(owners + tile).to(tl.int64)
    if owner >= 0:
        pair = tl.load(slots + tile * ROWS + tl.arange(0, ROWS))
        column = program % wide * TILE_N + tl.arange(0, TILE_N)
        depth = tl.arange(0, BLOCK)
        across: tl.constexpr = (WIDTH + BLOCK - 1) // BLOCK
        whole: tl.constexpr = BLOCK % TILE_N == 0
        row = tl.maximum(pair, 0).to(tl.int64)
        place = tl.minimum(column, HIDDEN - 1).to(tl.int64)
        right = inner + row[:, None] * WIDTH + depth[None, :]
        left = down + owner * (HIDDEN * WIDTH) + place[:, None] * WIDTH + depth[None, :]
        mine = w_scale + owner * ((HIDDEN + BLOCK - 1) // BLOCK * across)
        there, every = pair >= 0, column >= 0
        total = tl.zeros((TILE_N, ROWS), tl.float32)
        by_row = _by_row(x_scale, row, owner, 0, across, MOVING, ROWS)
        by_column = 1.0
        if BY_BLOCK:
            by_column = _by_block(mine, place, 0, across, whole, BLOCK)
        for at in tl.range(across, num_stages=STAGES):
            a = _read(right, at, there, depth, WIDTH, BLOCK, MASKED)
            w = _read(left, at, every, depth, WIDTH, BLOCK, False)
            if BY_BLOCK:
                next_row = _by_row(x_scale, row, owner, at + 1, across, MOVING, ROWS)
                next_column = _by_block(mine, place, at + 1, across, whole, BLOCK)
            total = _add(total, w, a, by_row, by_column, BY_BLOCK, whole)
            if BY_BLOCK:
                by_row, by_column = next_row, next_column
        if not BY_BLOCK:
            if BY_ROW:
                by_column = tl.load(w_scale + owner * HIDDEN + place)
            else:
                by_column = tl.zeros((TILE_N,), tl.float32) + tl.load(w_scale + owner)
            total = total * by_column[:, None] * by_row[None, :]
        total = total * tl.load(weights + row)[None, :]
        inside = there[None, :] & (column < HIDDEN)[:, None]
        tl.store(parts + row[None, :] * HIDDEN + column[:, None], total, mask=inside)


@triton.jit(do_not_specialize=["pairs"])
def scaled_expert_down(
    inner, down, x_scale, w_scale, weights, slots, owners, parts, pairs,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr, MOVING: tl.constexpr, BY_BLOCK: tl.constexpr,
    BY_ROW: tl.constexpr, BLOCK: tl.constexpr, FEW: tl.constexpr, FEW_ROWS: tl.constexpr,
    FEW_STAGES: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """parts fp32 [pairs, HIDDEN] = weight * (inner @ down.T), for inner fp8 [pairs, WIDTH].

    down is fp8 [experts, HIDDEN, WIDTH]; scales as in `scaled_expert_up`.
    Grid: tiles * ceil(HIDDEN / TILE_N).
    """
    if pairs <= FEW:
        _down_tile(
            inner, down, x_scale, w_scale, weights, slots, owners, parts, tl.program_id(0),
            HIDDEN, WIDTH, MOVING, BY_BLOCK, BY_ROW, FEW_ROWS, TILE_N, BLOCK, FEW_STAGES, True,
        )  # fmt: skip
    else:
        _down_tile(
            inner, down, x_scale, w_scale, weights, slots, owners, parts, tl.program_id(0),
            HIDDEN, WIDTH, MOVING, BY_BLOCK, BY_ROW, ROWS, TILE_N, BLOCK, STAGES, False,
        )  # fmt: skip
