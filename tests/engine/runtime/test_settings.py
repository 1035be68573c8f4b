"""What a manifest says of the step it boots, and how many KV blocks a run gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.steps import settings
from support.stores import manifest_of

from vcc.cache.errors import IntegrityError
from vcc.engine.config.modes import GraphMode
from vcc.engine.config.plain import plain
from vcc.engine.runtime.settings import boot_settings

WIDTH = 8
"""Blocks of a sequence of full length in `support.steps`."""
SETTINGS = settings(GraphMode.FULL, (1, 2), max_seqs=4)


def test_the_configuration_comes_back_from_the_manifest() -> None:
    info = {"model": plain(SETTINGS.model), "compilation": plain(SETTINGS.compilation)}
    found = boot_settings(manifest_of(info=info), (5, 6))
    assert found == replace(SETTINGS, lengths=(5, 6))
    assert (found.block_size, found.max_seqs, found.max_blocks_per_seq) == (8, 4, WIDTH)


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"model": {}, "compilation": 3},
        {"model": [], "compilation": {}},
        {"model": {"source": ""}, "compilation": {}},
        {"model": {"source": "x"}, "compilation": {"no_such_field": 1}},
        {"model": {"source": "x", "max_num_seqs": -1}, "compilation": {}},
    ],
    ids=str,
)
def test_a_manifest_without_a_valid_configuration_is_refused(info: dict[str, object]) -> None:
    with pytest.raises(IntegrityError, match="configuration"):
        boot_settings(manifest_of(info=info), ())


@given(st.lists(st.integers(1, 200), max_size=9), st.integers(1, 1 << 20), st.integers(0, 1 << 30))
def test_blocks_are_wanted_affordable_and_enough_for_one_sequence(
    lengths: list[int], block_bytes: int, memory: int
) -> None:
    blocks = replace(SETTINGS, lengths=tuple(lengths)).num_blocks(block_bytes, memory)
    most = SETTINGS.max_seqs * WIDTH
    assert 1 <= blocks <= most
    if lengths:
        assert blocks <= sum(min(-(-length // 8), WIDTH) for length in lengths)
    assert blocks <= max(memory // block_bytes, WIDTH)


def test_examples() -> None:
    assert replace(SETTINGS, lengths=(1,)).num_blocks(100, 1 << 20) == 1
    assert replace(SETTINGS, lengths=(9, 8)).num_blocks(100, 1 << 20) == 3
    assert SETTINGS.num_blocks(100, 1 << 20) == 4 * WIDTH, "not known: for all sequences"
    assert SETTINGS.num_blocks(100, 1000) == 10, "what memory allows"
    assert SETTINGS.num_blocks(100, 0) == WIDTH, "one sequence must fit"
