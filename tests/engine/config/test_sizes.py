"""Capture sizes, padding and compile ranges."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import ConfigError
from vcc.engine.config.modes import GraphMode
from vcc.engine.config.sizes import (
    CaptureLimits,
    choose_capture_sizes,
    default_sizes,
    padded_size,
    token_ranges,
)
from vcc.engine.config.types import DimRange


def test_default_sizes_are_1_2_4_then_eights_then_sixteens() -> None:
    sizes = default_sizes(512)
    assert sizes[:5] == (1, 2, 4, 8, 16)
    assert sizes[-3:] == (480, 496, 512)
    assert {b - a for a, b in itertools.pairwise(sizes) if a >= 256} == {16}
    assert default_sizes(3) == (1, 2)
    assert default_sizes(0) == ()


@pytest.mark.parametrize(
    ("limits", "largest"),
    [
        (CaptureLimits(128, 8192), 256),
        (CaptureLimits(1000, 8192), 512),
        (CaptureLimits(8, 8192, 3), 48),
        (CaptureLimits(128, 100), 100),
    ],
)
def test_the_default_maximum(limits: CaptureLimits, largest: int) -> None:
    assert limits.default_largest() == largest


def test_a_budget_below_every_size_names_the_budget() -> None:
    with pytest.raises(ConfigError, match="all are above the token budget of 8"):
        choose_capture_sizes((16, 32), None, GraphMode.FULL, CaptureLimits(8, 8))


@given(st.integers(1, 600), st.integers(1, 600), st.integers(1, 4))
def test_default_sizes_never_exceed_the_budget(seqs: int, budget: int, query_len: int) -> None:
    limits = CaptureLimits(seqs, max(budget, query_len), query_len)
    sizes, why = choose_capture_sizes(None, None, GraphMode.FULL_AND_PIECEWISE, limits)
    assert why
    assert list(sizes) == sorted(set(sizes))
    assert all(0 < size <= limits.token_budget and size % query_len == 0 for size in sizes)


@given(st.integers(0, 70), st.lists(st.integers(1, 64)))
def test_padding_takes_the_smallest_size_that_holds_the_tokens(n: int, sizes: list[int]) -> None:
    ordered = sorted(sizes)
    assert padded_size(n, ordered) == min((s for s in sizes if s >= n), default=None)


def test_P9_end_points_and_exact_sizes_give_five_compiles() -> None:
    found = token_ranges((8, 32), (16, 64), DimRange(1, 8192))
    pairs = [(one.min, one.max) for one in found]
    assert pairs == [(1, 8), (9, 32), (33, 8192), (16, 16), (64, 64)]


def test_one_range_without_end_points_and_no_repeats() -> None:
    assert token_ranges((), (), DimRange(1, 8)) == (DimRange(1, 8),)
    assert token_ranges((8,), (), DimRange(1, 8)) == (DimRange(1, 8),)
    assert token_ranges((1,), (1,), DimRange(1, 8)) == (DimRange(1, 1), DimRange(2, 8))


@given(st.sets(st.integers(1, 99), max_size=6), st.integers(1, 50), st.integers(0, 49))
def test_ranges_cover_every_token_count_once(ends: set[int], low: int, more: int) -> None:
    found = token_ranges(tuple(ends), (), DimRange(low, low + more))
    covered = [n for one in found for n in range(one.min, one.max + 1)]
    assert covered == list(range(low, low + more + 1))
