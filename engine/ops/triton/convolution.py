"""A convolution of images as a product whose rows are read where they lie: no window is copied."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["places"])
def convolution(
    image,
    weight,
    out,
    places,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    FILTERS: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    TAPS_DOWN: tl.constexpr,
    TAPS_ACROSS: tl.constexpr,
    STRIDE_DOWN: tl.constexpr,
    STRIDE_ACROSS: tl.constexpr,
    PAD_DOWN: tl.constexpr,
    PAD_ACROSS: tl.constexpr,
    APART_DOWN: tl.constexpr,
    APART_ACROSS: tl.constexpr,
    PARTS: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """out [PARTS, places, FILTERS] of image [N, HEIGHT, WIDTH, CHANNELS], all dense; fp32 inside.

    `weight` is [FILTERS, TAPS_DOWN, TAPS_ACROSS, CHANNELS]; places are those of every image, row by
    row. What is summed over is cut into PARTS, which the caller adds. CHANNELS are a multiple of
    TILE_K.
    Grid (ceil(places / TILE_M), ceil(FILTERS / TILE_N), PARTS).
    """
    place = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    column = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    part, lane = tl.program_id(2), tl.arange(0, TILE_K)
    # Places and filters outside repeat one inside: read without a mask of theirs, never stored.
    held = tl.minimum(place, places - 1)
    across, rest = held % OUT_WIDTH, held // OUT_WIDTH
    top = (rest % OUT_HEIGHT) * STRIDE_DOWN - PAD_DOWN
    side = across * STRIDE_ACROSS - PAD_ACROSS
    one = tl.cast(rest // OUT_HEIGHT, tl.int64)
    pixels = image + one * (HEIGHT * WIDTH * CHANNELS)
    depth: tl.constexpr = TAPS_DOWN * TAPS_ACROSS * CHANNELS
    filters = weight + tl.minimum(column, FILTERS - 1)[None, :] * depth + lane[:, None]
    blocks: tl.constexpr = CHANNELS // TILE_K
    steps: tl.constexpr = depth // TILE_K
    each: tl.constexpr = (steps + PARTS - 1) // PARTS
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for step in range(part * each, tl.minimum(part * each + each, steps)):
        tap, block = step // blocks, step % blocks
        y = top + (tap // TAPS_ACROSS) * APART_DOWN
        x = side + (tap % TAPS_ACROSS) * APART_ACROSS
        seen = (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH)
        at = (y * WIDTH + x) * CHANNELS + block * TILE_K
        left = tl.load((pixels + at)[:, None] + lane[None, :], mask=seen[:, None], other=0.0)
        right = tl.load(filters + step * TILE_K)
        total = tl.dot(left, right, total, input_precision="ieee")
    row = tl.cast(part, tl.int64) * places + place
    inside = (place < places)[:, None] & (column < FILTERS)[None, :]
    goal = out + row[:, None] * FILTERS + column[None, :]
    tl.store(goal, total.to(out.dtype.element_ty), mask=inside)
