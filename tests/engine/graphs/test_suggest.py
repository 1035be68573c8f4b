"""Suggested capture sizes leave the least padding of all choices."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.engine.graphs.suggest import suggest


def rows(steps: dict[int, int], sizes: tuple[int, ...]) -> int:
    return sum(count * next(s for s in sizes if s >= raw) for raw, count in steps.items())


STEPS = st.dictionaries(st.integers(1, 40), st.integers(1, 9), min_size=1, max_size=7)


@given(STEPS, st.integers(1, 8))
def test_no_other_choice_of_as_many_sizes_computes_fewer_rows(steps, graphs) -> None:
    found = suggest(steps, graphs)
    assert len(found.sizes) <= graphs
    assert found.sizes == tuple(sorted(set(found.sizes)))
    assert found.padded_tokens == rows(steps, found.sizes)
    assert found.raw_tokens == sum(raw * count for raw, count in steps.items())
    seen = sorted(steps)
    count = min(graphs, len(seen))
    others = (c for c in combinations(seen, count) if c[-1] == seen[-1])
    assert found.padded_tokens == min(rows(steps, other) for other in others)


def test_as_many_graphs_as_sizes_leave_no_padding() -> None:
    found = suggest({1: 5, 7: 2}, 8)
    assert (found.sizes, found.padding) == ((1, 7), 0.0)


@pytest.mark.parametrize(("steps", "graphs"), [({}, 4), ({0: 3}, 4), ({3: 0}, 4), ({3: 1}, 0)])
def test_nothing_seen_or_wanted_suggests_nothing(steps, graphs) -> None:
    found = suggest(steps, graphs)
    assert (found.sizes, found.padding) == ((), 0.0)


def test_three_thousand_different_sizes_are_summed_up_in_a_moment() -> None:
    found = suggest(dict.fromkeys(range(1, 3001), 1), 4)
    assert found.sizes == (750, 1500, 2250, 3000)
