"""Products of fp8 values in Triton: tensor cores multiply fp8, sums and scales are fp32.

Sums leave the tensor cores every BLOCK values, as many as share a scale of a block: those of fp8
keep fewer bits there than fp32 has.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _row_scale(x_scale, row, MOVING: tl.constexpr):
    """The factor of each row: one number, or one a row."""
    return tl.load(x_scale + row * (1 if MOVING == 1 else 0))


@triton.jit
def _column_scale(w_scale, column, FIRST: tl.constexpr, SECOND: tl.constexpr, PARTS: tl.constexpr):
    """The factor of each column: its own, or that of its range."""
    if PARTS == 0:
        scale = tl.load(w_scale + column)
    else:
        part = (column >= FIRST).to(tl.int32) + (column >= SECOND).to(tl.int32)
        scale = tl.load(w_scale + part)
    return scale


@triton.jit
def _block_scales(
    x_scale, w_scale, rows, source, column, first, at,
    DEPTH: tl.constexpr, BLOCK: tl.constexpr, TILE_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Factors of block `at` of the depth: of each row, and of the tile's columns from `first` on.

    Those of a block of all rows lie together. A tile that lies in one block of columns has one
    factor.
    """
    across: tl.constexpr = (DEPTH + BLOCK - 1) // BLOCK
    at = tl.minimum(at, across - 1)
    by_row = tl.load(x_scale + at * rows + source)
    if BLOCK % TILE_COLUMNS == 0:
        by_column = tl.load(w_scale + first // BLOCK * across + at)
    else:
        by_column = tl.load(w_scale + column // BLOCK * across + at)
    return by_row, by_column


@triton.jit
def _of_rows(values, ROWS_LEFT: tl.constexpr):
    """A value of each row along a tile."""
    return values[:, None] if ROWS_LEFT else values[None, :]


@triton.jit
def _of_columns(values, ROWS_LEFT: tl.constexpr):
    """A value of each column along a tile."""
    return values[None, :] if ROWS_LEFT else values[:, None]


@triton.jit
def _sums(
    w, a, total, BLOCK: tl.constexpr, ADDS: tl.constexpr, ROWS_LEFT: tl.constexpr
):  # fmt: skip
    """Products of a block of values, added to `total` or alone."""
    if ADDS:
        if ROWS_LEFT:
            found = tl.dot(a, tl.trans(w), total, max_num_imprecise_acc=BLOCK)
        else:
            found = tl.dot(w, tl.trans(a), total, max_num_imprecise_acc=BLOCK)
    elif ROWS_LEFT:
        found = tl.dot(a, tl.trans(w))
    else:
        found = tl.dot(w, tl.trans(a))
    return found


@triton.jit
def _tile(
    x, weight, x_scale, w_scale, bias, out, rows, column_tile, row_tile,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr, MOVING: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr, PARTS: tl.constexpr, HAS_BIAS: tl.constexpr,
    BLOCK: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLUMNS: tl.constexpr,
    STAGES: tl.constexpr, MASKED: tl.constexpr, ROWS_LEFT: tl.constexpr,
):  # fmt: skip
    """One tile of the result: rows are the left operand or, as tensor cores take 64 there, columns.

    Columns outside repeat the last one, and so do rows unless MASKED. A mask costs more than the
    reading of a few rows too many, and less than reading a tile whose rows are mostly outside.
    """
    first = column_tile * TILE_COLUMNS
    column = first + tl.arange(0, TILE_COLUMNS)
    row = row_tile * TILE_ROWS + tl.arange(0, TILE_ROWS)
    inner = tl.arange(0, BLOCK)
    source = tl.minimum(row, rows - 1).to(tl.int64)
    place = tl.minimum(column, COLUMNS - 1).to(tl.int64)
    left = weight + place[:, None] * DEPTH + inner[None, :]
    right = x + source[:, None] * DEPTH + inner[None, :]
    there = (row < rows)[:, None]
    if ROWS_LEFT:
        total = tl.zeros((TILE_ROWS, TILE_COLUMNS), tl.float32)
    else:
        total = tl.zeros((TILE_COLUMNS, TILE_ROWS), tl.float32)
    across: tl.constexpr = (DEPTH + BLOCK - 1) // BLOCK
    if MOVING == 2:
        by_row, by_column = _block_scales(
            x_scale, w_scale, rows, source, place, first, 0, DEPTH, BLOCK, TILE_COLUMNS
        )
    for at in tl.range(across, num_stages=STAGES):
        if DEPTH % BLOCK == 0:
            w = tl.load(left + at * BLOCK)
            if MASKED:
                a = tl.load(right + at * BLOCK, mask=there, other=0.0)
            else:
                a = tl.load(right + at * BLOCK)
        else:
            held = (at * BLOCK + inner < DEPTH)[None, :]
            w = tl.load(left + at * BLOCK, mask=held, other=0.0)
            a = tl.load(right + at * BLOCK, mask=held & there, other=0.0)
        if MOVING == 2:
            part = _sums(w, a, total, BLOCK, False, ROWS_LEFT)
            if BLOCK % TILE_COLUMNS == 0:
                total += part * _of_rows(by_column * by_row, ROWS_LEFT)
            else:
                total += part * _of_columns(by_column, ROWS_LEFT) * _of_rows(by_row, ROWS_LEFT)
            # Those of the next block are asked for here: they come while its values are waited for.
            by_row, by_column = _block_scales(
                x_scale, w_scale, rows, source, place, first, at + 1, DEPTH, BLOCK, TILE_COLUMNS
            )
        else:
            total = _sums(w, a, total, BLOCK, True, ROWS_LEFT)
    if MOVING != 2:
        by_column = _column_scale(w_scale, place, FIRST, SECOND, PARTS)
        by_row = _row_scale(x_scale, source, MOVING)
        total = total * _of_columns(by_column, ROWS_LEFT) * _of_rows(by_row, ROWS_LEFT)
    if HAS_BIAS:
        total += _of_columns(tl.load(bias + place).to(tl.float32), ROWS_LEFT)
    to = out + _of_rows(row.to(tl.int64) * COLUMNS, ROWS_LEFT) + _of_columns(column, ROWS_LEFT)
    inside = _of_rows(row < rows, ROWS_LEFT) & _of_columns(column < COLUMNS, ROWS_LEFT)
    tl.store(to, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def scaled_linear(
    x, weight, x_scale, w_scale, bias, out, rows,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr, MOVING: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr, PARTS: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
    LEAST: tl.constexpr, LEAST_COLUMNS: tl.constexpr, LEAST_STAGES: tl.constexpr,
    LEAST_LEFT: tl.constexpr, FEW: tl.constexpr, FEW_COLUMNS: tl.constexpr,
    FEW_STAGES: tl.constexpr, FEW_LEFT: tl.constexpr, TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr, STAGES: tl.constexpr, LEFT: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """out [rows, COLUMNS] = (x [rows, DEPTH] * x_scale) @ (weight [COLUMNS, DEPTH] * w_scale).T.

    Up to LEAST rows a program has LEAST_COLUMNS columns of all rows, and up to FEW of them
    FEW_COLUMNS; above, tiles of TILE_ROWS rows and TILE_COLUMNS columns, BAND tiles of rows
    together, so that they share weights in the L2 cache. Few rows are memory traffic and have
    LEAST_STAGES or FEW_STAGES loads in flight; many have STAGES. Tiles have rows on the left where
    LEAST_LEFT, FEW_LEFT and LEFT are 1, columns where they are 0.
    Grid: the programs of the way that has most; those that are left over end at once.
    MOVING 0: one scale of x; 1: one a row; 2: one a block, of both, x_scale [blocks, rows]; with
    rows on the left a thread needs fewer of these. PARTS ranges of columns begin at 0, FIRST and
    SECOND; 0 means a scale for each column.
    """
    program = tl.program_id(0)
    if rows <= LEAST:
        if program * LEAST_COLUMNS < COLUMNS:
            _tile(
                x, weight, x_scale, w_scale, bias, out, rows, program, 0,
                COLUMNS, DEPTH, MOVING, FIRST, SECOND, PARTS, HAS_BIAS, BLOCK,
                LEAST, LEAST_COLUMNS, LEAST_STAGES, True, LEAST_LEFT == 1,
            )  # fmt: skip
    elif rows <= FEW:
        if program * FEW_COLUMNS < COLUMNS:
            _tile(
                x, weight, x_scale, w_scale, bias, out, rows, program, 0,
                COLUMNS, DEPTH, MOVING, FIRST, SECOND, PARTS, HAS_BIAS, BLOCK,
                FEW, FEW_COLUMNS, FEW_STAGES, True, FEW_LEFT == 1,
            )  # fmt: skip
    else:
        across: tl.constexpr = (COLUMNS + TILE_COLUMNS - 1) // TILE_COLUMNS
        down = tl.cdiv(rows, TILE_ROWS)
        if program < across * down:
            band = program // (BAND * across) * BAND
            height = tl.minimum(down - band, BAND)
            row_tile = band + program % (BAND * across) % height
            column_tile = program % (BAND * across) // height
            _tile(
                x, weight, x_scale, w_scale, bias, out, rows, column_tile, row_tile,
                COLUMNS, DEPTH, MOVING, FIRST, SECOND, PARTS, HAS_BIAS, BLOCK,
                TILE_ROWS, TILE_COLUMNS, STAGES, False, LEFT == 1,
            )  # fmt: skip


SPREAD_LANES = 256
"""Rows of a program of `spread_scales`; the player knows this number."""


@triton.jit
def spread_scales(scales, spread, rows, across, lead, LANES: tl.constexpr):
    """spread [across, lead] = scales [across, rows] of blocks; what lies behind `rows` stays.

    Grid: (ceil(rows / LANES), across).
    """
    row, block = tl.program_id(0) * LANES + tl.arange(0, LANES), tl.program_id(1).to(tl.int64)
    found = tl.load(scales + block * rows + row, mask=row < rows)
    tl.store(spread + block * lead + row, found, mask=row < rows)
