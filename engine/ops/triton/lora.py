"""Low-rank adapters in Triton: tiles of rows, fp32 accumulation, no shape that depends on data.

A tile looks at every slot and multiplies with those that one of its rows has; with none it ends
after it has read its rows' slots. Rows of other slots keep their values whatever a matrix holds.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tokens"])
def lora_shrink(
    x,
    a,
    slots,
    low,
    tokens,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """low fp32 [T, WIDTH] = x [T, DEPTH] @ a[slot].T for a [SLOTS, WIDTH, DEPTH].

    Grid (ceil(WIDTH / TILE_N), ceil(T / ROWS)).
    """
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    slot = tl.load(slots + row, mask=row < tokens, other=-1)
    # Rows and columns outside repeat one inside: read without a mask, and never stored.
    left = x + tl.minimum(row, tokens - 1).to(tl.int64)[:, None] * DEPTH + depth[None, :]
    right = a + tl.minimum(column, WIDTH - 1).to(tl.int64)[:, None] * DEPTH + depth[None, :]
    total = tl.zeros((ROWS, TILE_N), tl.float32)
    for index in range(SLOTS):
        mine = slot == index
        if tl.max(mine.to(tl.int32), 0) > 0:
            one = tl.zeros((ROWS, TILE_N), tl.float32)
            matrix = right + tl.cast(index, tl.int64) * (WIDTH * DEPTH)
            for start in range(0, DEPTH, TILE_K):
                held = (start + depth < DEPTH)[None, :]
                values = tl.load(left + start, mask=held, other=0.0)
                weights = tl.load(matrix + start, mask=held, other=0.0)
                one = tl.dot(values, tl.trans(weights), one, input_precision="ieee")
            total = tl.where(mine[:, None], one, total)
    place = low + row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    tl.store(place, total, mask=(row < tokens)[:, None] & (column < WIDTH)[None, :])


@triton.jit(do_not_specialize=["tokens"])
def lora_expand(
    y,
    low,
    b,
    slots,
    tokens,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    PARTS: tl.constexpr,
    RANK: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    TILE_N: tl.constexpr,
):
    """y [T, WIDTH] += low @ b[slot].T for low fp32 [T, PARTS * RANK], b [SLOTS, WIDTH, RANK].

    In place, so that a step without adapters can leave the kernel out. Columns below FIRST take the
    first part of `low`, those below SECOND the second, the rest the third. Grid
    (ceil(WIDTH / TILE_N), ceil(T / ROWS)).
    """
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    begin = tl.program_id(0) * TILE_N
    column, lane = begin + tl.arange(0, TILE_N), tl.arange(0, LANES)
    slot = tl.load(slots + row, mask=row < tokens, other=-1)
    inside = (row < tokens)[:, None] & (column < WIDTH)[None, :]
    place = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    total = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    part = (column >= FIRST).to(tl.int32) + (column >= SECOND).to(tl.int32)
    held = (lane < RANK)[None, :]
    left = low + tl.minimum(row, tokens - 1).to(tl.int64)[:, None] * (PARTS * RANK) + lane[None, :]
    right = b + tl.minimum(column, WIDTH - 1).to(tl.int64)[:, None] * RANK + lane[None, :]
    for index in range(SLOTS):
        mine = slot == index
        if tl.max(mine.to(tl.int32), 0) > 0:
            weights = tl.load(
                right + tl.cast(index, tl.int64) * (WIDTH * RANK), mask=held, other=0.0
            ).to(tl.float32)
            for one in tl.static_range(PARTS):
                values = tl.load(left + one * RANK, mask=held, other=0.0)
                added = tl.dot(values, tl.trans(weights), input_precision="ieee")
                total = tl.where(mine[:, None] & (part == one)[None, :], total + added, total)
    tl.store(y + place, total.to(y.dtype.element_ty), mask=inside & (slot >= 0)[:, None])
