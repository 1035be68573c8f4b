"""The likeliest experts of each row in Triton: one program a row, probabilities in fp32."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _first(left, lane, LANES: tl.constexpr):
    """The largest value and where it is; of equal ones the first."""
    best = tl.max(left, 0)
    return best, tl.min(tl.where(left == best, lane, LANES), 0)


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
            best, place = _first(left, lane, LANES)
            chosen += best
            left = tl.where(lane == place, -2.0, left)
        left = tl.where(inside & (each == each), each, -1.0)
        total = chosen
    for turn in tl.static_range(TOP_K):
        best, place = _first(left, lane, LANES)
        tl.store(weights + row * TOP_K + turn, best / total)
        tl.store(ids + row * TOP_K + turn, tl.minimum(place, EXPERTS - 1))
        left = tl.where(lane == place, -2.0, left)


@triton.jit
def topk_sigmoid(
    logits,
    weights,
    ids,
    EXPERTS: tl.constexpr,
    LANES: tl.constexpr,
    TOP_K: tl.constexpr,
    RENORMALISE: tl.constexpr,
):
    """As `topk_softmax`, each expert's probability by itself: a NaN is one expert's, and first."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    inside = lane < EXPERTS
    x = tl.load(logits + row * EXPERTS + lane, mask=inside, other=0.0).to(tl.float32)
    each = 1.0 / (1.0 + tl.exp(-x))
    order = tl.where(each == each, each, 2.0)  # a NaN goes before every probability
    left = tl.where(inside, order, -1.0)
    total = tl.sum(left, 0) * 0.0
    if RENORMALISE:
        for _ in tl.static_range(TOP_K):
            best, place = _first(left, lane, LANES)
            total += tl.where(best > 1.5, float("nan"), best)
            left = tl.where(lane == place, -2.0, left)
        left = tl.where(inside, order, -1.0)
    for turn in tl.static_range(TOP_K):
        best, place = _first(left, lane, LANES)
        value = tl.where(best > 1.5, float("nan"), best)
        if RENORMALISE:
            value = value / total
        tl.store(weights + row * TOP_K + turn, value)
        tl.store(ids + row * TOP_K + turn, place)
        left = tl.where(lane == place, -2.0, left)
