"""Numbers that move with the placement: made of addresses and refused, or halves of old ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.captured_words import KNOWING, PLACES, SPACE, STACK, block, captured

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.words import Captured, relocate


def test_small_numbers_that_move_with_the_placement_are_refused() -> None:
    """Remainders of addresses: of what begins anywhere, and bytes of them behind a field."""
    for first, second in ((0x186, 0x1CC), (0x4560, 0x7890), (0x0186_2006, 0x01CC_A006)):
        with pytest.raises(GraphError, match="depends on addresses"):
            relocate("n", captured((first, second, first)), PLACES)


MADE_OF_ADDRESSES = ((0x0, 0x1), (0x3, 0xFF), (0x186, 0x1CC), (0x1F0, 0x10), (0x4560, 0x7890))
"""Remainders of addresses at the two places."""


@pytest.mark.parametrize(("first", "second"), MADE_OF_ADDRESSES)
@pytest.mark.parametrize("where", [0, 32])
@pytest.mark.parametrize("beside", [0, 1, 5, 256, 0x6000, 0x7FFE, 0x7FFF_FFFF])
def test_a_number_that_moves_is_refused_whatever_stands_beside_it(
    first: int, second: int, where: int, beside: int
) -> None:
    """CUDA's mappings at low addresses make no halves of small numbers, nor do sizes beside them.

    0x6000 beside it looks like an address in the regions, but in one of two captures only.
    """
    words = [number << where | beside << (32 - where) for number in (first, second, first)]
    triple = (words[0], words[1], words[2])
    with pytest.raises(GraphError, match="depends on addresses"):
        relocate("n", captured(triple), KNOWING)


def test_two_numbers_that_move_beside_each_other_are_refused() -> None:
    words = [upper << 32 | lower for upper, lower in ((0x186, 0x40), (0x1CC, 0x80))]
    with pytest.raises(GraphError, match="depends on addresses"):
        relocate("n", captured((words[0], words[1], words[0])), KNOWING)


@pytest.mark.parametrize("spread", [0x40, 0x12_3456])
def test_an_old_address_of_the_process_may_move_within_what_is_mapped(spread: int) -> None:
    """The upper half of it is the same then, as if it were a number of its own."""
    word = STACK.start + 0x1000
    found = relocate("n", captured((word, word + spread, word)), KNOWING)
    assert len(found.unsteady) == 1
    with pytest.raises(GraphError, match="depends on addresses"):
        relocate("n", captured((word, word + spread, word)), PLACES)


def test_of_one_process_what_moved_and_is_more_than_half_an_old_address_is_refused() -> None:
    """Not all that is captured in one process is replayed before it is stored."""

    def words(first: int, second: int) -> Captured:
        return replace(captured((first, second, first)), one_process=True)

    half = words(SPACE.first & ~0xFFFF_FFFF | 7, SPACE.second & ~0xFFFF_FFFF | 7)
    assert relocate("n", half, PLACES).block == block(7)
    below = words(256 << 32 | 0x20_0040, 256 << 32 | 0x60_0040)
    assert relocate("n", below, PLACES).pointers == ()
    for first, second in (
        (SPACE.first + 64 ^ 1 << 50, SPACE.second + 64 ^ 1 << 50),
        (SPACE.first + SPACE.size + 8, SPACE.second + SPACE.size + 8),
        (0x6022_E707_0000, 0x4022_E707_0000 + 64),
        (SPACE.first % 2**32, SPACE.second % 2**32),
        (0x186, 0x1CC),
    ):
        with pytest.raises(GraphError, match="depends on addresses"):
            relocate("n", words(first, second), PLACES)
