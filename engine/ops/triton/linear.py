"""Matrix products in Triton: d = a @ w.T (+ c), fp32 accumulation, for few rows and for many.

Few rows: the weights are the left operand, so a tensor-core tile is full of weights and the rows
are its narrow side; k is split over programs and the partial sums are added by `reduce_splits`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _products(
    left,
    right,
    inner,
    begin,
    end,
    k,
    NARROW: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """The sum over begin..end: [TILE_N, TILE_ROWS] when NARROW, else [TILE_ROWS, TILE_N].

    The tiles that lie inside k are read without a mask, the last one with.
    """
    if NARROW:
        total = tl.zeros((TILE_N, TILE_ROWS), tl.float32)
    else:
        total = tl.zeros((TILE_ROWS, TILE_N), tl.float32)
    full = begin + (tl.minimum(end, k) - begin) // TILE_K * TILE_K
    for at in range(begin, full, TILE_K):
        at = tl.multiple_of(at, TILE_K)
        a, w = tl.load(left + at), tl.load(right + at)
        if NARROW:
            total = tl.dot(w, tl.trans(a), total, input_precision="ieee")
        else:
            total = tl.dot(a, tl.trans(w), total, input_precision="ieee")
    if full < tl.minimum(end, k):
        held = (full + inner < k)[None, :]
        a = tl.load(left + full, mask=held, other=0.0)
        w = tl.load(right + full, mask=held, other=0.0)
        if NARROW:
            total = tl.dot(w, tl.trans(a), total, input_precision="ieee")
        else:
            total = tl.dot(a, tl.trans(w), total, input_precision="ieee")
    return total


@triton.jit(do_not_specialize=["rows"])
def linear(
    a,
    w,
    c,
    d,
    partials,
    rows,
    n,
    k,
    HAS_C: tl.constexpr,
    SPLIT: tl.constexpr,
    NARROW: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    BAND: tl.constexpr,
):
    """d [rows, n] = a [rows, k] @ w [n, k].T (+ c [rows, n]), all dense.

    Grid (ceil(n / TILE_N), ceil(rows / TILE_ROWS), splits of k). With SPLIT the sums of part s go
    to partials [splits, rows, n] in fp32 and c is not read. BAND tiles of rows are worked on
    together, so that they share the weights in the L2 cache.
    """
    across, down = tl.num_programs(0), tl.num_programs(1)
    column, row_tile = tl.program_id(0), tl.program_id(1)
    if not NARROW:
        order = row_tile * across + column
        band = order // (BAND * across) * BAND
        height = tl.minimum(down - band, BAND)
        row_tile = band + order % (BAND * across) % height
        column = order % (BAND * across) // height
    outer = column * TILE_N + tl.arange(0, TILE_N)
    row = row_tile * TILE_ROWS + tl.arange(0, TILE_ROWS)
    inner = tl.arange(0, TILE_K)
    # Rows outside repeat the last one: read without a mask, and never stored.
    source = tl.minimum(row, rows - 1).to(tl.int64)
    weight = tl.minimum(outer, n - 1).to(tl.int64)
    left = a + source[:, None] * k + inner[None, :]
    right = w + weight[:, None] * k + inner[None, :]
    part = tl.program_id(2)
    share = tl.cdiv(tl.cdiv(k, TILE_K), tl.num_programs(2)) * TILE_K
    begin = tl.minimum(part * share, k)
    total = _products(
        left, right, inner, begin, begin + share, k, NARROW, TILE_ROWS, TILE_N, TILE_K
    )
    wide_row = row.to(tl.int64)
    if NARROW:
        place = wide_row[None, :] * n + outer[:, None]
        inside = (row < rows)[None, :] & (outer < n)[:, None]
    else:
        place = wide_row[:, None] * n + outer[None, :]
        inside = (row < rows)[:, None] & (outer < n)[None, :]
    if SPLIT:
        home = partials + part.to(tl.int64) * rows * n
        tl.store(home + place, total, mask=inside)
    else:
        if HAS_C:
            total += tl.load(c + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(d + place, total.to(d.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def reduce_splits(
    partials,
    c,
    d,
    rows,
    n,
    HAS_C: tl.constexpr,
    SPLITS: tl.constexpr,
    LANES: tl.constexpr,
):
    """d [rows, n] = the sum of partials [SPLITS, rows, n], in order (+ c); grid (columns, rows)."""
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = column < n
    place = row * n + column
    total = tl.zeros((LANES,), tl.float32)
    plane = rows.to(tl.int64) * n
    for part in tl.static_range(SPLITS):
        total += tl.load(partials + part * plane + place, mask=inside, other=0.0)
    if HAS_C:
        total += tl.load(c + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(d + place, total.to(d.dtype.element_ty), mask=inside)
