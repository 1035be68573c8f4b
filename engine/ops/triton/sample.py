"""Sampling in Triton: logits to tokens, by the rules and random numbers of runtime/sample.py.

Four launches. `sample_scan` finds the likeliest token of each chunk of a row; `sample_levels` sums
each chunk's weights and counts its tokens by their distance from the row's largest logit;
`sample_gather` copies the tokens that top-k or top-p can keep to a short list, in order of id;
`sample_choose` picks. Nothing is sorted: the order "likeliest first, lower ids first" is walked by
bisection over the logits' bits. Weights are whole numbers (fixed point), so sums do not depend on
their order, and a sequence gets the same token in any batch.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _ordered(x, SHIFT: tl.constexpr):
    """Integers in the order of x: NaN above infinity, both zeros equal.

    SHIFT bits at the end are zero (or all one) in every value of the logits' dtype and go.
    """
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return tl.where(_is_nan(x), 0x7FFFFFFF, key) >> SHIFT


@triton.jit
def _is_nan(x):
    return (x.to(tl.int32, bitcast=True) & 0x7FFFFFFF) > 0x7F800000


@triton.jit
def _cold(temperature):
    """What differences of logits are multiplied by to become exponents of two."""
    return 1.4426950408889634 / tl.maximum(temperature, 1e-30)


@triton.jit
def _weight(x, highest, cold):
    # 2^40 for the largest logit: 2^18 tokens of it stay below 2^60.
    return (tl.exp2((x - highest) * cold) * 1099511627776.0).to(tl.int64)


@triton.jit
def _is_greedy(temperature, top_k):
    return (temperature == 0.0) | (top_k == 1)


@triton.jit
def _highest(peaks, CHUNKS: tl.constexpr, CHUNK_LANES: tl.constexpr):
    """The largest logit of a row; NaN if there is one."""
    lane = tl.arange(0, CHUNK_LANES)
    high = tl.load(peaks + lane, mask=lane < CHUNKS, other=-float("inf"))
    broken = tl.sum(_is_nan(high).to(tl.int32), 0) > 0
    return tl.where(broken, float("nan"), tl.max(high, 0))


@triton.jit
def sample_scan(
    logits,
    peaks,
    places,
    VOCAB: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    SHIFT: tl.constexpr,
):
    """Chunk `program_id(0)` of row `program_id(1)`: its largest logit and the first id of it.

    logits [B, VOCAB] -> peaks f32 and places i32 [B, CHUNKS].
    """
    chunk, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    ids = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = ids < VOCAB
    x = tl.load(logits + row * VOCAB + ids, mask=inside, other=-float("inf")).to(tl.float32)
    key = tl.where(inside, _ordered(x, SHIFT), -2147483648)
    best = tl.max(key, 0)
    place = tl.min(tl.where(key == best, ids, 2147483647), 0)
    has_nan = tl.sum(_is_nan(x).to(tl.int32), 0) > 0
    tl.store(peaks + row * CHUNKS + chunk, tl.where(has_nan, float("nan"), tl.max(x, 0)))
    tl.store(places + row * CHUNKS + chunk, place)


@triton.jit
def sample_levels(
    logits,
    peaks,
    weights,
    counts,
    temperature,
    top_p,
    top_k,
    VOCAB: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK_LANES: tl.constexpr,
    LEVELS: tl.constexpr,
):
    """The same grid: the chunk's weight, and its tokens by level: twice the halvings of its weight.

    Writes weights i64 [B, CHUNKS] and counts i32 [B, CHUNKS, LEVELS]; nothing for a greedy row.
    """
    chunk, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    heat, k = tl.load(temperature + row), tl.load(top_k + row)
    if not _is_greedy(heat, k):
        cold = _cold(heat)
        ids = chunk * CHUNK + tl.arange(0, CHUNK)
        inside = ids < VOCAB
        highest = _highest(peaks + row * CHUNKS, CHUNKS, CHUNK_LANES)
        x = tl.load(logits + row * VOCAB + ids, mask=inside, other=-float("inf")).to(tl.float32)
        weight = tl.sum(_weight(x, highest, cold), 0)
        tl.store(weights + row * CHUNKS + chunk, weight)
        level = _level(x, highest, cold, LEVELS)
        outside = tl.sum((ids >= VOCAB).to(tl.int32), 0)
        lane = tl.arange(0, LEVELS)
        count = tl.histogram(level, LEVELS) - tl.where(lane == LEVELS - 1, outside, 0)
        tl.store(counts + (row * CHUNKS + chunk) * LEVELS + lane, count)


@triton.jit
def _level(x, highest, cold, LEVELS: tl.constexpr):
    distance = tl.minimum((highest - x) * cold * 2.0, LEVELS - 1.0)
    return tl.where(distance == distance, distance, 0.0).to(tl.int32)


@triton.jit
def sample_gather(
    logits,
    peaks,
    weights,
    counts,
    kept,
    kept_ids,
    kept_count,
    temperature,
    top_p,
    top_k,
    VOCAB: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK_LANES: tl.constexpr,
    LEVELS: tl.constexpr,
    ROOM: tl.constexpr,
):
    """The same grid: copy the tokens of the levels that can be kept, ordered by id.

    kept f32 and kept_ids i32 [B, ROOM] receive at most ROOM; kept_count i32 [B] is how many there
    are. Where it is larger, `sample_choose` reads the row instead.
    """
    chunk, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    heat, p, k = tl.load(temperature + row), tl.load(top_p + row), tl.load(top_k + row)
    limited = (k > 0) & (k < VOCAB)
    if (not _is_greedy(heat, k)) & (limited | (p < 1.0)):
        cold = _cold(heat)
        lane, level_lane = tl.arange(0, 16), tl.arange(0, LEVELS)
        home = counts + row * CHUNKS * LEVELS + level_lane[None, :]
        total = tl.zeros((LEVELS,), tl.int32)
        for first in range(0, CHUNKS, 16):
            index = (first + lane)[:, None]
            total += tl.sum(tl.load(home + index * LEVELS, mask=index < CHUNKS, other=0), 0)
        chunk_lane = tl.arange(0, CHUNK_LANES)
        mass = tl.load(weights + row * CHUNKS + chunk_lane, mask=chunk_lane < CHUNKS, other=0)
        # Tokens of a level weigh at most as much as its nearest edge: what is left out is certain.
        most = total.to(tl.float32) * tl.exp2(level_lane.to(tl.float32) * -0.5)
        left_out = tl.sum(most, 0) - tl.cumsum(most, 0)
        allowed = (1.0 - p - 1e-5) * (tl.sum(mass, 0).to(tl.float32) / 1099511627776.0)
        last_p = tl.sum((left_out > allowed).to(tl.int32), 0)
        last_k = tl.sum((tl.cumsum(total, 0) < k).to(tl.int32), 0)
        last = tl.minimum(tl.where(limited, last_k, last_p), LEVELS - 1)
        before = tl.zeros((LEVELS,), tl.int32)
        for first in range(0, chunk, 16):
            index = (first + lane)[:, None]
            before += tl.sum(tl.load(home + index * LEVELS, mask=index < chunk, other=0), 0)
        offset = tl.sum(tl.where(level_lane <= last, before, 0), 0)

        ids = chunk * CHUNK + tl.arange(0, CHUNK)
        inside = ids < VOCAB
        highest = _highest(peaks + row * CHUNKS, CHUNKS, CHUNK_LANES)
        x = tl.load(logits + row * VOCAB + ids, mask=inside, other=-float("inf")).to(tl.float32)
        chosen = inside & (_level(x, highest, cold, LEVELS) <= last)
        place = offset + tl.cumsum(chosen.to(tl.int32), 0) - 1
        chosen = chosen & (place < ROOM)
        tl.store(kept + row * ROOM + place, x, mask=chosen)
        tl.store(kept_ids + row * ROOM + place, ids, mask=chosen)
        count = tl.sum(tl.where(level_lane <= last, total, 0), 0)
        tl.store(kept_count + row, count, mask=chunk == 0)
