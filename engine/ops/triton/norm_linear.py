"""A projection of normed rows in Triton: the norm's factor is put on the sums, not on the rows."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rms_norm_linear(
    x,
    gain,
    weight,
    out,
    rows,
    EPS: tl.constexpr,
    OFFSET: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
    TILE_WIDTH: tl.constexpr,
):
    """out [rows, COLUMNS] = norm(x [rows, WIDTH]) @ weight [COLUMNS, WIDTH] transposed.

    Axis 0 of the grid covers columns, axis 1 rows.
    """
    row = tl.program_id(1) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    column = tl.program_id(0) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    here, there = (row < rows)[:, None], (column < COLUMNS)[:, None]
    lane = tl.arange(0, TILE_WIDTH)
    sums = tl.zeros((TILE_ROWS, TILE_COLUMNS), tl.float32)
    squares = tl.zeros((TILE_ROWS,), tl.float32)
    for start in range(0, WIDTH, TILE_WIDTH):
        at = start + lane
        inside = (at < WIDTH)[None, :]
        place = row.to(tl.int64)[:, None] * WIDTH + at[None, :]
        wide = tl.load(x + place, mask=here & inside, other=0.0).to(tl.float32)
        factor = tl.load(gain + at, mask=at < WIDTH, other=0.0).to(tl.float32) + OFFSET
        place = column.to(tl.int64)[:, None] * WIDTH + at[None, :]
        other = tl.load(weight + place, mask=there & inside, other=0.0)
        scaled = (wide * factor[None, :]).to(x.dtype.element_ty)
        sums += tl.dot(scaled, tl.trans(other), input_precision="ieee")
        squares += tl.sum(wide * wide, 1)
    sums *= tl.rsqrt(squares / WIDTH + EPS)[:, None]
    place = row.to(tl.int64)[:, None] * COLUMNS + column[None, :]
    inside = here & (column < COLUMNS)[None, :]
    tl.store(out + place, sums.to(out.dtype.element_ty), mask=inside)
