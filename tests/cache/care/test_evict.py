"""Eviction: what is worth least goes first, and nothing goes that must stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vcc.cache.care.evict import HALF_LIFE_S, Bounds, chosen, score, usual_build_ms, worst_first
from vcc.cache.care.items import Item

NOW = 1e9


def item(name: str, *, size=100, ms=1000, idle=0.0, base="b", created=1) -> Item:
    return Item(
        artifact=name * 64,
        base=base,
        title=name,
        size=size,
        build_ms=ms,
        created=created,
        used=NOW - idle,
        now=NOW,
        hits=0,
        pinned=False,
        holders=0,
        shown={},
        request="[]",
        host_rules="[]",
    )


def evicted(items, bounds, blobs=None, keep=()):
    sizes = {i.artifact: i.size for i in items} if blobs is None else blobs[1]
    named = (lambda a: frozenset()) if blobs is None else lambda a: frozenset(blobs[0][a[0]])
    found = chosen(items, bounds, may_go=lambda i: i.title not in keep, named=named, sizes=sizes)
    return "".join(one.item.title for one in found)


def test_cheap_large_and_idle_artifacts_go_first():
    items = [
        item("a", ms=60_000),
        item("b", ms=1_000),
        item("c", ms=60_000, size=10**6),
        item("d", ms=60_000, idle=20 * HALF_LIFE_S),
    ]
    assert [i.title for i in worst_first(items)] == ["d", "c", "b", "a"]


def test_a_week_without_use_weighs_as_much_as_half_the_build():
    assert score(item("a", ms=1000), 1) == score(item("a", ms=2000, idle=HALF_LIFE_S), 1)


def test_builds_of_unknown_length_count_as_the_usual_one():
    items = [item("a", ms=0), item("b", ms=1000), item("c", ms=3000), item("d", ms=9000)]
    assert usual_build_ms(items) == 3000
    assert score(items[0], 3000) == score(items[2], 3000)
    assert usual_build_ms([item("a", ms=0)]) > 0


@given(st.floats(-3.2e8, 3.2e8))
def test_a_clock_that_was_set_keeps_the_order_of_what_is_not_new(years):
    items = [item("a", idle=4e8), item("b", idle=4e8 + 86400), item("c", idle=4e8 + 1e6)]
    moved = [replace(i, now=i.now + years) for i in items]
    assert [i.title for i in worst_first(moved)] == ["c", "b", "a"]


def test_the_largest_size_is_kept_by_evicting_as_little_as_the_order_allows():
    items = [item("a", ms=1), item("b", ms=2), item("c", ms=3)]
    assert evicted(items, Bounds(max_size=300)) == ""
    assert evicted(items, Bounds(max_size=299)) == "a"
    assert evicted(items, Bounds(max_size=100)) == "ab"
    assert evicted(items, Bounds(max_size=1)) == "abc"
    assert evicted(items, Bounds(max_size=100), keep="a") == "bc"


def test_a_shared_blob_is_free_only_when_its_last_user_goes():
    items = [item("a", ms=1), item("b", ms=2), item("c", ms=3)]
    blobs = ({"a": ["x"], "b": ["x"], "c": ["y"]}, {"x": 1000, "y": 10})
    assert evicted(items, Bounds(max_size=1009), blobs) == "ab"


def test_the_newest_of_each_model_stay():
    items = [
        *(item(n, created=c) for n, c in (("a", 1), ("b", 3), ("c", 2))),
        item("d", base="other", created=1),
    ]
    assert evicted(items, Bounds(keep_last=1)) == "ca"
    assert evicted(items, Bounds(keep_last=2)) == "a"
    assert evicted(items, Bounds(keep_last=3)) == ""
    assert evicted(items, Bounds(keep_last=1), keep="c") == "a"


def test_what_was_unused_for_long_goes():
    items = [item("a", idle=100), item("b", idle=99)]
    assert evicted(items, Bounds(unused_s=100)) == "a"


def test_bounds_add_up():
    items = [item("a", ms=9, idle=100), item("b", ms=1), item("c", ms=5)]
    assert evicted(items, Bounds(unused_s=100, max_size=100)) == "ab"
