"""Products of matrices that no gemm node holds, in Triton: batches, and sizes that move.

A gemm node multiplies rows by one weight [n, k] whose sizes are known. Scores of attention and what
they weigh are many products, and their n or k is a size of the step.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "columns", "depth"])
def product(
    a,
    b,
    out,
    rows,
    columns,
    depth,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """out [N, rows, columns] = a [N, rows, depth] @ b [N, depth, columns], all dense; fp32 inside.

    Grid (ceil(rows / TILE_M), ceil(columns / TILE_N), N).
    """
    row = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    column = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    matrix, lane = tl.program_id(2).to(tl.int64), tl.arange(0, TILE_K)
    # tl.cast, as torch 2.11 looks for what a kernel writes with its integers as constants.
    wide, deep = tl.cast(columns, tl.int64), tl.cast(depth, tl.int64)
    # Rows and columns outside repeat one inside: read without a mask of theirs, and never stored.
    left = a + (matrix * rows + tl.minimum(row, rows - 1))[:, None] * deep + lane[None, :]
    right = b + (matrix * deep + lane)[:, None] * wide + tl.minimum(column, columns - 1)[None, :]
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for start in range(0, depth, TILE_K):
        held = start + lane < depth
        x = tl.load(left + start, mask=held[None, :], other=0.0)
        y = tl.load(right + start * wide, mask=held[:, None], other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
    place = out + (matrix * rows + row)[:, None] * wide + column[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=inside)
