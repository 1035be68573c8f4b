"""Memory of a step: what is alive at the same time never overlaps, and little is wasted."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.planner.arithmetic import rebuilt
from vcc.engine.graphs.planner.memory import (
    ALIGNMENT,
    Lifetime,
    Memory,
    aligned,
    lifetimes,
    pack,
    stacked,
    tensor_bytes,
)
from vcc.engine.graphs.table.types import RegionKind
from vcc.engine.ops.triton.registry import Facts, TensorLayout, launches
from vcc.engine.torch_shim.profiles import PROFILES

SPANS = st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(0, 10))


@given(st.lists(SPANS, max_size=30))
def test_what_lives_at_the_same_time_does_not_overlap(spans: list[tuple[int, int, int]]) -> None:
    lives = [
        Lifetime(str(index), size * ALIGNMENT, first, first + length)
        for index, (size, first, length) in enumerate(spans)
    ]
    offsets, total = pack(lives)
    for one in lives:
        assert offsets[one.name] % ALIGNMENT == 0
        assert offsets[one.name] + one.size <= total
        for other in lives:
            apart = one.last < other.first or other.last < one.first
            below = offsets[one.name] + one.size <= offsets[other.name]
            above = offsets[other.name] + other.size <= offsets[one.name]
            assert one is other or apart or below or above


def test_a_chain_needs_two_buffers_however_long_it_is() -> None:
    lives = [Lifetime(str(index), 1024, index, index + 1) for index in range(50)]
    assert pack(lives)[1] == 2048


def test_a_lifetime_reaches_from_the_first_touch_to_the_last() -> None:
    memories = {
        "a": Memory("a", RegionKind.WORKSPACE, ["*", 4, "T"]),
        "w": Memory("w", RegionKind.WEIGHTS, 64),
    }
    (life,) = lifetimes(memories, [("w",), ("a", "w"), (), ("a",), ("w",)], {"T": 100})
    assert (life.name, life.first, life.last) == ("a", 1, 3)
    assert life.size == 512  # 400, rounded up


@given(st.integers(1, 5000), st.integers(1, 300))
def test_stacked_memory_is_aligned_and_apart_at_every_size(tokens: int, seqs: int) -> None:
    found = [
        Memory("ids", RegionKind.IO, ["*", 4, "T"]),
        Memory("table", RegionKind.IO, ["*", 132, "B"]),
        Memory("logits", RegionKind.IO, ["*", 64, "B"]),
    ]
    sizes = {"T": tokens, "B": seqs}
    offsets, total = stacked(found)
    places = [evaluate(offsets[one.name], sizes) for one in found]
    ends = [at + evaluate(one.size, sizes) for at, one in zip(places, found, strict=True)]
    assert all(place % ALIGNMENT == 0 for place in places)
    assert all(end <= start for end, start in zip(ends, places[1:], strict=False))
    assert ends[-1] <= evaluate(total, sizes) < ends[-1] + ALIGNMENT


def test_a_size_that_is_a_multiple_stays_a_product() -> None:
    assert aligned(["*", 4096, "K"]) == ["*", 4096, "K"]


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("group", [1, 2, 3, 8])
@pytest.mark.parametrize("kv_heads", [1, 2, 8])
@pytest.mark.parametrize("dim", [16, 128])
def test_the_parts_of_split_keys_have_all_their_memory(
    target: str, group: int, kv_heads: int, dim: int
) -> None:
    """Eight groups of eight heads, as in Llama-3-70B, had none for peaks and sums."""
    facts = Facts("bfloat16", PROFILES[target], 16, 64)
    rows = {name: TensorLayout(("T", group * kv_heads * dim)) for name in ("q", "out")}
    cache = {"kv_cache": TensorLayout((2, "K", 16, kv_heads, dim))}
    made = launches("paged_attention", {**rows, **cache, "scale": 0.1}, facts)
    assert {one.name for one in made.workspaces} == {"partial", "peaks", "sums"}
    for space in made.workspaces:
        shape = tuple(rebuilt(size, {"B": "B"}) for size in space.shape)
        whole = aligned(tensor_bytes(space.dtype, shape))
        for seqs in (1, 4, 256):
            needed = 4 * prod(evaluate_all(space.shape, {"B": seqs}))
            assert 0 <= evaluate(whole, {"B": seqs}) - needed < ALIGNMENT
