"""Gated experts in Triton: products of tiles of rows that have one expert, fp32 accumulation.

A pair is a row and one of its experts, row * TOP_K + choice. `expert_tiles` gives each expert
whole tiles of pairs; grids are as large as any routing needs, and programs of tiles that nobody
has end at once: no shape depends on data, and the host knows nothing of the routing.

Up to FEW pairs an expert has few rows, if any, and a step is the reading of its weights: tiles are
low then, FEW_ROWS rows. Above, weights are shared by ROWS rows.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["pairs", "tiles"])
def expert_tiles(
    ids,
    slots,
    owners,
    pairs,
    tiles,
    EXPERTS: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    FEW: tl.constexpr,
    FEW_ROWS: tl.constexpr,
):
    """The pairs of expert `program_id(0)` in order, in tiles of rows; -1 where there is none.

    slots i32 holds pairs, a tile after another, owners i32 [tiles] the expert of each tile. Every
    program counts the pairs of all experts, to know where its own tiles begin.
    """
    rows = tl.where(pairs > FEW, ROWS, FEW_ROWS)
    mine = tl.program_id(0)
    lane, at = tl.arange(0, LANES), tl.arange(0, CHUNK)
    counts = tl.zeros((LANES,), tl.int32)
    for start in range(0, pairs, CHUNK):
        # Lanes past the last pair count for the last lane, which is no expert's.
        expert = tl.load(ids + start + at, mask=start + at < pairs, other=LANES - 1)
        counts += tl.histogram(expert, LANES)
    needed = tl.where(lane < EXPERTS, (counts + rows - 1) // rows, 0)
    first = tl.sum(tl.where(lane < mine, needed, 0), 0)
    count = tl.sum(tl.where(lane == mine, counts, 0), 0)
    own = (count + rows - 1) // rows
    found = first * rows
    for start in range(0, pairs, CHUNK):
        expert = tl.load(ids + start + at, mask=start + at < pairs, other=-1)
        is_mine = (expert == mine).to(tl.int32)
        place = found + tl.cumsum(is_mine, 0) - 1
        tl.store(slots + place, start + at, mask=is_mine > 0)
        found += tl.sum(is_mine, 0)
    row = tl.arange(0, ROWS)
    tl.store(slots + found + row, -1 + row * 0, mask=found + row < (first + own) * rows)
    for start in range(0, own, CHUNK):
        tl.store(owners + first + start + at, mine + at * 0, mask=start + at < own)
    if mine == EXPERTS - 1:
        for start in range(first + own, tiles, CHUNK):
            tl.store(owners + start + at, -1 + at * 0, mask=start + at < tiles)


@triton.jit
def _product(total, left, right, inner, DEPTH: tl.constexpr, TILE_K: tl.constexpr):
    """total + left @ right.T over DEPTH, for tiles of pointers to dense rows."""
    for start in range(0, DEPTH - DEPTH % TILE_K, TILE_K):
        a, w = tl.load(left + start), tl.load(right + start)
        total = tl.dot(a, tl.trans(w), total, input_precision="ieee")
    if DEPTH % TILE_K:
        last: tl.constexpr = DEPTH - DEPTH % TILE_K
        held = (last + inner < DEPTH)[None, :]
        a = tl.load(left + last, mask=held, other=0.0)
        w = tl.load(right + last, mask=held, other=0.0)
        total = tl.dot(a, tl.trans(w), total, input_precision="ieee")
    return total


@triton.jit
def _products(left, gates, ups, inner, zero, DEPTH: tl.constexpr, TILE_K: tl.constexpr):
    """Two products with the same rows in one loop: they are read once, and more is on its way."""
    gate, up = zero, zero
    for start in range(0, DEPTH - DEPTH % TILE_K, TILE_K):
        a, g, u = tl.load(left + start), tl.load(gates + start), tl.load(ups + start)
        gate = tl.dot(a, tl.trans(g), gate, input_precision="ieee")
        up = tl.dot(a, tl.trans(u), up, input_precision="ieee")
    if DEPTH % TILE_K:
        last: tl.constexpr = DEPTH - DEPTH % TILE_K
        held = (last + inner < DEPTH)[None, :]
        a = tl.load(left + last, mask=held, other=0.0)
        g = tl.load(gates + last, mask=held, other=0.0)
        u = tl.load(ups + last, mask=held, other=0.0)
        gate = tl.dot(a, tl.trans(g), gate, input_precision="ieee")
        up = tl.dot(a, tl.trans(u), up, input_precision="ieee")
    return gate, up


@triton.jit
def _up_tile(
    x, gate_up, slots, owners, inner, program,
    TOP_K: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """One tile of rows and TILE_N columns of both products."""
    across: tl.constexpr = (WIDTH + TILE_N - 1) // TILE_N
    tile = program // across
    owner = tl.load(owners + tile)
    if owner >= 0:
        pair = tl.load(slots + tile * ROWS + tl.arange(0, ROWS))
        column = program % across * TILE_N + tl.arange(0, TILE_N)
        depth = tl.arange(0, TILE_K)
        # Rows and columns outside repeat one inside: read without a mask, and never stored.
        row = (tl.maximum(pair, 0) // TOP_K).to(tl.int64)
        weight = tl.minimum(column, WIDTH - 1).to(tl.int64) * HIDDEN
        left = x + row[:, None] * HIDDEN + depth[None, :]
        gates = gate_up + owner.to(tl.int64) * (2 * WIDTH * HIDDEN)
        gates = gates + weight[:, None] + depth[None, :]
        zero = tl.zeros((ROWS, TILE_N), tl.float32)
        gate, up = _products(left, gates, gates + WIDTH * HIDDEN, depth, zero, HIDDEN, TILE_K)
        result = gate * tl.sigmoid(gate) * up
        place = inner + tl.maximum(pair, 0).to(tl.int64)[:, None] * WIDTH + column[None, :]
        inside = (pair >= 0)[:, None] & (column < WIDTH)[None, :]
        tl.store(place, result.to(inner.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["pairs", "tiles"])
def expert_up(
    x, gate_up, slots, owners, inner, pairs, tiles,
    TOP_K: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
    FEW: tl.constexpr, FEW_ROWS: tl.constexpr, FEW_N: tl.constexpr, FEW_K: tl.constexpr,
):  # fmt: skip
    """inner [pairs, WIDTH] = silu(gate) * up, for dense x [T, HIDDEN].

    gate_up is [experts, 2 * WIDTH, HIDDEN]. Grid: the programs of either way, whichever are more.
    """
    program = tl.program_id(0)
    if pairs <= FEW:
        if program < (WIDTH + FEW_N - 1) // FEW_N * tiles:
            _up_tile(
                x, gate_up, slots, owners, inner, program,
                TOP_K, HIDDEN, WIDTH, FEW_ROWS, FEW_N, FEW_K,
            )  # fmt: skip
    elif program < (WIDTH + TILE_N - 1) // TILE_N * tiles:
        _up_tile(
            x, gate_up, slots, owners, inner, program,
            TOP_K, HIDDEN, WIDTH, ROWS, TILE_N, TILE_K,
        )  # fmt: skip


@triton.jit
def _down_tile(
    inner, down, weights, slots, owners, parts, program,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """One tile of rows and TILE_N columns."""
    across: tl.constexpr = (HIDDEN + TILE_N - 1) // TILE_N
    tile = program // across
    owner = tl.load(owners + tile)
    if owner >= 0:
        pair = tl.load(slots + tile * ROWS + tl.arange(0, ROWS))
        column = program % across * TILE_N + tl.arange(0, TILE_N)
        depth = tl.arange(0, TILE_K)
        row = tl.maximum(pair, 0).to(tl.int64)
        weight = tl.minimum(column, HIDDEN - 1).to(tl.int64) * WIDTH
        left = inner + row[:, None] * WIDTH + depth[None, :]
        right = down + owner.to(tl.int64) * (HIDDEN * WIDTH) + weight[:, None] + depth[None, :]
        total = tl.zeros((ROWS, TILE_N), tl.float32)
        total = _product(total, left, right, depth, WIDTH, TILE_K)
        total = total * tl.load(weights + row)[:, None]
        inside = (pair >= 0)[:, None] & (column < HIDDEN)[None, :]
        place = parts + row[:, None] * HIDDEN + column[None, :]
        tl.store(place, total.to(parts.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["pairs", "tiles"])
def expert_down(
    inner, down, weights, slots, owners, parts, pairs, tiles,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
    FEW: tl.constexpr, FEW_ROWS: tl.constexpr, FEW_N: tl.constexpr, FEW_K: tl.constexpr,
):  # fmt: skip
    """parts [pairs, HIDDEN] = weight * (inner @ down.T), down is [experts, HIDDEN, WIDTH].

    Grid as `expert_up`.
    """
    program = tl.program_id(0)
    if pairs <= FEW:
        if program < (HIDDEN + FEW_N - 1) // FEW_N * tiles:
            _down_tile(
                inner, down, weights, slots, owners, parts, program,
                HIDDEN, WIDTH, FEW_ROWS, FEW_N, FEW_K,
            )  # fmt: skip
    elif program < (HIDDEN + TILE_N - 1) // TILE_N * tiles:
        _down_tile(
            inner, down, weights, slots, owners, parts, program,
            HIDDEN, WIDTH, ROWS, TILE_N, TILE_K,
        )  # fmt: skip


@triton.jit
def expert_sum(parts, out, TOP_K: tl.constexpr, HIDDEN: tl.constexpr, LANES: tl.constexpr):
    """out [T, HIDDEN] = the sum of the TOP_K parts of each row; grid (T, ceil(HIDDEN / LANES))."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * LANES + tl.arange(0, LANES)
    inside = column < HIDDEN
    total = tl.zeros((LANES,), tl.float32)
    for choice in tl.static_range(TOP_K):
        place = (row * TOP_K + choice) * HIDDEN + column
        total += tl.load(parts + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * HIDDEN + column, total.to(out.dtype.element_ty), mask=inside)
