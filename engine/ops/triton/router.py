"""The likeliest experts of each row in Triton: one program a row, softmax in fp32."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def topk_softmax(
    logits,
    weights,
    ids,
    EXPERTS: tl.constexpr,
    LANES: tl.constexpr,
    TOP_K: tl.constexpr,
    RENORMALISE: tl.constexpr,
):
    """weights fp32 and ids i32 [T, TOP_K] of row `program_id(0)` of dense logits [T, EXPERTS].

    Of equal scores the first is taken. A row with a NaN or an infinity has NaN for weights.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    inside = lane < EXPERTS
    x = tl.load(logits + row * EXPERTS + lane, mask=inside, other=-float("inf")).to(tl.float32)
    each = tl.where(inside, tl.exp(x - tl.max(x, 0)), 0.0)
    total = tl.sum(each, 0)
    left = tl.where(inside & (each == each), each, -1.0)
    chosen = total * 0.0
    if RENORMALISE:
        for _ in tl.static_range(TOP_K):
            best = tl.max(left, 0)
            place = tl.min(tl.where(left == best, lane, LANES), 0)
            chosen += best
            left = tl.where(lane == place, -2.0, left)
        left = tl.where(inside & (each == each), each, -1.0)
        total = chosen
    for turn in tl.static_range(TOP_K):
        best = tl.max(left, 0)
        place = tl.min(tl.where(left == best, lane, LANES), 0)
        tl.store(weights + row * TOP_K + turn, best / total)
        tl.store(ids + row * TOP_K + turn, tl.minimum(place, EXPERTS - 1))
        left = tl.where(lane == place, -2.0, left)
