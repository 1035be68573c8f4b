"""Composite modes as pairs, and the check that boot repeats."""

from __future__ import annotations

import itertools

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.graph_mode import GraphFacts, check_graph_mode, settle_graph_mode
from vcc.engine.config.modes import AttentionSupport, GraphMode


def test_composite_modes_are_pairs() -> None:
    pairs = {mode: (mode.decode_part, mode.mixed_part) for mode in GraphMode}
    assert pairs[GraphMode.FULL_DECODE_ONLY] == (GraphMode.FULL, GraphMode.NONE)
    assert pairs[GraphMode.FULL_AND_PIECEWISE] == (GraphMode.FULL, GraphMode.PIECEWISE)
    for plain in (GraphMode.NONE, GraphMode.PIECEWISE, GraphMode.FULL):
        assert pairs[plain] == (plain, plain)


def test_the_weakest_layer_counts() -> None:
    levels = (AttentionSupport.ALWAYS, AttentionSupport.UNIFORM_BATCH)
    assert AttentionSupport.weakest(levels) is AttentionSupport.UNIFORM_BATCH
    assert AttentionSupport.weakest(()) is AttentionSupport.ALWAYS


@pytest.mark.parametrize(
    "mode", [GraphMode.FULL, GraphMode.FULL_DECODE_ONLY, GraphMode.FULL_AND_PIECEWISE]
)
def test_never_with_a_mode_that_is_still_full_is_an_error(mode: GraphMode) -> None:
    with pytest.raises(ConfigError, match="does not work with this attention back end"):
        check_graph_mode(mode, GraphFacts(AttentionSupport.NEVER, 1, True, True))


def test_what_the_rules_make_always_passes_the_check() -> None:
    parts = (GraphMode, AttentionSupport, (1, 3), (True, False), (True, False))
    for mode, support, query_len, pieces, split in itertools.product(*parts):
        facts = GraphFacts(support, query_len, pieces, split)
        steps = list(settle_graph_mode(mode, facts))
        last = steps[-1][0] if steps else mode
        check_graph_mode(last, facts)
        assert all(why for _, why in steps)
        assert pieces or not last.uses(GraphMode.PIECEWISE)
