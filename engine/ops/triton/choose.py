"""The last launch of sampling: one program a row walks its tokens, likeliest first."""

from __future__ import annotations

import triton
import triton.language as tl

from vcc.engine.ops.triton.philox import philox_word
from vcc.engine.ops.triton.sample import _cold, _highest, _is_greedy, _is_nan, _ordered, _weight


@triton.jit
def _tile(row, kept, from_row, start, count, TILE: tl.constexpr):
    """Logits start.. of the row itself, or of its short list; which of them exist."""
    lane = start + tl.arange(0, TILE)
    inside = lane < count
    if from_row:
        x = tl.load(row + lane, mask=inside, other=-float("inf")).to(tl.float32)
    else:
        x = tl.load(kept + lane, mask=inside, other=-float("inf"))
    return x, inside


@triton.jit
def _last_key(
    row,
    kept,
    from_row,
    count,
    highest,
    cold,
    wanted,
    BY_WEIGHT: tl.constexpr,
    SHIFT: tl.constexpr,
    TILE: tl.constexpr,
):
    """The largest key such that the tokens of it and above reach `wanted` in number or weight.

    Two bits a pass: the lanes' sums of three thresholds are added up at the end of the pass.
    """
    found = (wanted * 0) - (2147483648 >> SHIFT)
    for turn in range((33 - SHIFT) // 2):
        unit = wanted * 0 + 1 << ((33 - SHIFT) // 2 - 1 - turn) * 2
        first = tl.zeros((TILE,), tl.int64)
        second = tl.zeros((TILE,), tl.int64)
        third = tl.zeros((TILE,), tl.int64)
        for start in range(0, count, TILE):
            x, inside = _tile(row, kept, from_row, start, count, TILE)
            key = _ordered(x, SHIFT).to(tl.int64) - found
            share = inside.to(tl.int64)
            if BY_WEIGHT:
                share = tl.where(inside, _weight(x, highest, cold), 0)
            first += tl.where(key >= unit, share, 0)
            second += tl.where(key >= 2 * unit, share, 0)
            third += tl.where(key >= 3 * unit, share, 0)
        steps = (tl.sum(first, 0) >= wanted).to(tl.int64)
        steps += (tl.sum(second, 0) >= wanted).to(tl.int64)
        steps += (tl.sum(third, 0) >= wanted).to(tl.int64)
        found += steps * unit
    return found


@triton.jit
def _around(
    row, kept, from_row, count, highest, cold, key, SHIFT: tl.constexpr, TILE: tl.constexpr
):
    """Number and weight of the tokens above a key; number of those that have it; weight of one."""
    above, weight, ties, each = key * 0, key * 0, key * 0, key * 0
    for start in range(0, count, TILE):
        x, inside = _tile(row, kept, from_row, start, count, TILE)
        mine, share = _ordered(x, SHIFT).to(tl.int64), _weight(x, highest, cold)
        above += tl.sum((inside & (mine > key)).to(tl.int64), 0)
        weight += tl.sum(tl.where(inside & (mine > key), share, 0), 0)
        ties += tl.sum((inside & (mine == key)).to(tl.int64), 0)
        each = tl.maximum(each, tl.max(tl.where(inside & (mine == key), share, 0), 0))
    return above, weight, ties, each


@triton.jit
def _tie(row, kept, kept_ids, from_row, count, key, rank, SHIFT: tl.constexpr, TILE: tl.constexpr):
    """Id of the token number `rank`, from 0, of those that have a key, in order of id."""
    token, before = (key * 0).to(tl.int32), rank * 0
    for start in range(0, count, TILE):
        x, inside = _tile(row, kept, from_row, start, count, TILE)
        same = inside & (_ordered(x, SHIFT).to(tl.int64) == key)
        place = before + tl.cumsum(same.to(tl.int64), 0) - 1
        lane = start + tl.arange(0, TILE)
        ids = lane
        if not from_row:
            ids = tl.load(kept_ids + lane, mask=inside, other=0)
        token += tl.sum(tl.where(same & (place == rank), ids, 0), 0)
        before += tl.sum(same.to(tl.int64), 0)
    return token


@triton.jit
def _scaled(word, total):
    """floor((word + 1/2) / 2^32 * total) of a 32-bit word and total < 2^60, exactly."""
    odd = word.to(tl.int64) * 2 + 1
    high, low = total >> 29, total & 536870911
    return (odd * high + (odd * low >> 29)) >> 4


@triton.jit
def _by_id(
    row, weights, point, highest, cold, VOCAB: tl.constexpr, CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr, CHUNK_LANES: tl.constexpr,
):  # fmt: skip
    """The token at a point of the weights in order of id: its chunk first, then the token."""
    lane = tl.arange(0, CHUNK_LANES)
    mass = tl.load(weights + lane, mask=lane < CHUNKS, other=0)
    passed = (tl.cumsum(mass, 0) <= point) & (lane < CHUNKS)
    chunk = tl.minimum(tl.sum(passed.to(tl.int32), 0), CHUNKS - 1)
    rest = point - tl.sum(tl.where(lane < chunk, mass, 0), 0)
    ids = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(row + ids, mask=ids < VOCAB, other=-float("inf")).to(tl.float32)
    behind = tl.cumsum(_weight(x, highest, cold), 0) <= rest
    return tl.minimum(chunk * CHUNK + tl.sum(behind.to(tl.int32), 0), VOCAB - 1)


@triton.jit
def sample_choose(
    logits, peaks, places, weights, kept, kept_ids, kept_count, temperature, top_p, top_k,
    seed, request, step, token,
    VOCAB: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, CHUNK_LANES: tl.constexpr,
    ROOM: tl.constexpr, SHIFT: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Row `program_id(0)`: its next token i32 [B], from what the three launches before found.

    A row whose largest logit is NaN or infinite has no probabilities: as in sample.py the last
    token is taken, or the first of the order when top-p cuts; with top-k always the largest. It is
    written as -1 - token then, which tells the host and is no id.
    """
    seq = tl.program_id(0).to(tl.int64)
    heat, p, k = tl.load(temperature + seq), tl.load(top_p + seq), tl.load(top_k + seq)
    highest = _highest(peaks + seq * CHUNKS, CHUNKS, CHUNK_LANES)
    lane = tl.arange(0, CHUNK_LANES)
    high = tl.load(peaks + seq * CHUNKS + lane, mask=lane < CHUNKS, other=-float("inf"))
    place = tl.load(places + seq * CHUNKS + lane, mask=lane < CHUNKS, other=2147483647)
    best = (high == highest) | (_is_nan(high) & _is_nan(highest))
    chosen = tl.min(tl.where(best, place, 2147483647), 0)
    limited = (k > 0) & (k < VOCAB)
    no_highest = _is_nan(highest) | (tl.abs(highest) == float("inf"))
    if not _is_greedy(heat, k):
        row = logits + seq * VOCAB
        if no_highest:
            if not limited:
                chosen = tl.where(p < 1.0, 0, VOCAB - 1)
        else:
            cold = _cold(heat)
            word = philox_word(tl.load(seed + seq), tl.load(request + seq), tl.load(step + seq))
            if limited | (p < 1.0):
                count = tl.load(kept_count + seq)
                short, short_ids = kept + seq * ROOM, kept_ids + seq * ROOM
                from_row = count > ROOM
                count = tl.where(from_row, VOCAB, count)
                mass = tl.load(weights + seq * CHUNKS + lane, mask=lane < CHUNKS, other=0)
                total = tl.sum(mass, 0)
                edge = total * 0 - 4294967296
                room = total * 0
                before = total
                each = total * 0
                if limited:
                    edge = _last_key(
                        row, short, from_row, count, highest, cold, k.to(tl.int64), False,
                        SHIFT, TILE,
                    )  # fmt: skip
                    above, before, _, each = _around(
                        row, short, from_row, count, highest, cold, edge, SHIFT, TILE
                    )
                    room = k - above
                    total = before + room * each
                if p < 1.0:
                    wanted = (total.to(tl.float64) * p).to(tl.int64)
                    cut = edge
                    if wanted > before:
                        if limited:
                            room = tl.minimum(tl.cdiv(wanted - before, each), room)
                            total = before + room * each
                    else:
                        cut = _last_key(
                            row, short, from_row, count, highest, cold, tl.maximum(wanted, 1),
                            True, SHIFT, TILE,
                        )  # fmt: skip
                        _, before, ties, each = _around(
                            row, short, from_row, count, highest, cold, cut, SHIFT, TILE
                        )
                        each = tl.maximum(each, 1)
                        room = tl.minimum(tl.maximum(tl.cdiv(wanted - before, each), 1), ties)
                        total = before + room * each
                    edge = cut
                point = _scaled(word, total)
                if point < before:
                    edge = _last_key(
                        row, short, from_row, count, highest, cold, point + 1, True, SHIFT, TILE
                    )
                    _, before, room, each = _around(
                        row, short, from_row, count, highest, cold, edge, SHIFT, TILE
                    )
                rank = tl.minimum((point - before) // tl.maximum(each, 1), room - 1)
                chosen = _tie(row, short, short_ids, from_row, count, edge, rank, SHIFT, TILE)
            else:
                lane_mass = tl.load(weights + seq * CHUNKS + lane, mask=lane < CHUNKS, other=0)
                point = _scaled(word, tl.sum(lane_mass, 0))
                chosen = _by_id(
                    row, weights + seq * CHUNKS, point, highest, cold, VOCAB, CHUNK, CHUNKS,
                    CHUNK_LANES,
                )  # fmt: skip
    tl.store(token + seq, tl.where(no_highest, -1 - chosen, chosen))
