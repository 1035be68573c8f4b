"""Bytes of a parameter block: constants, pointers, noise, and what is refused."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from support.captured_words import KNOWING, PLACES, SPACE, WEIGHTS, block, captured

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.words import NONE, Captured, relocate


def test_a_word_that_moves_with_its_region_is_a_pointer() -> None:
    found = relocate(
        "n", captured((WEIGHTS.first + 24, WEIGHTS.second + 24, WEIGHTS.first + 24)), PLACES
    )
    assert found.pointers == ((0, 0, 24),)
    assert found.block == bytes(8)


def test_the_end_of_a_region_moves_with_it_and_what_lies_behind_is_nobodys() -> None:
    """Kernels take where their input begins and where it ends."""
    ends = [SPACE.size + by for by in (0, 8)]
    words = [(SPACE.first + at, SPACE.second + at, SPACE.first + at) for at in ends]
    found = relocate("n", captured(*words), PLACES)
    assert found.pointers == ((0, 1, SPACE.size),)
    assert [told.split(" was ")[0] for told in found.unsteady] == ["byte 8"]


def test_equal_words_stay() -> None:
    found = relocate("n", captured((7, 7, 7), (2**63, 2**63, 2**63)), PLACES)
    assert found.block == block(7, 2**63)
    assert found.pointers == ()


def test_what_differs_at_one_place_becomes_zero() -> None:
    found = relocate("n", captured((0x7FFE_1234_5678, 0x7FFC_0000_5678, 0x7FFD_9999_5678)), PLACES)
    assert found.block == block(0x7F00_0000_5678)
    assert found.noise == 3


def test_an_address_of_one_process_becomes_zero_though_it_stays() -> None:
    kept = captured((0x7FFE_1234_5678, 0x7FFE_1234_5678, 0x7FFE_1234_5678), (5, 5, 5))
    found = relocate("n", replace(kept, host=frozenset({0}), one_process=True), PLACES)
    assert found.block == block(0, 5)
    assert found.noise == 8


def test_flags_over_an_old_address_of_the_process_are_kept() -> None:
    """A list of flags is filled over dead stack: two are set, and the rest of an address follows.

    Forks of one process have it at one address, where /proc says that the word is memory.
    """
    word = 0x7FFE_1234_0101
    found = relocate("n", replace(captured((word, word, word)), host=frozenset({0})), PLACES)
    assert found.block == block(word)


def test_an_address_of_the_process_that_differs_at_one_place_only_is_no_refusal() -> None:
    kept = captured((0x7FFE_1234_0101, 0x7FFE_1299_0101, 0x7FFE_1234_0101))
    found = relocate("n", replace(kept, host=frozenset({0})), PLACES)
    assert found.block == block(0x7FFE_1200_0101)


def test_an_address_of_a_heap_below_4_gib_is_dead_if_it_moves() -> None:
    """Pythons that are not position-independent have their heap there."""
    words = captured((0x3306_4BE0, 0x328B_2EF0, 0x3306_4BE0))
    found = relocate("n", replace(words, host=frozenset({0})), PLACES)
    assert (found.block, found.unsteady) == (block(0), ())
    with pytest.raises(GraphError, match="depends on addresses"):
        relocate("n", words, PLACES)


@pytest.mark.parametrize("dead", [False, True])
def test_a_number_as_small_as_a_size_is_no_address_of_one_process(dead: bool) -> None:
    kept = captured((0x41_0000, 0x41_0000, 0x41_0000))
    found = relocate("n", replace(kept, host=frozenset({0}), one_process=dead), PLACES)
    assert found.block == block(0x41_0000)


def test_the_upper_half_of_a_stack_address_in_one_and_of_a_region_in_the_other_is_dead() -> None:
    words = tuple(top << 32 | 2 for top in (SPACE.first >> 32, 0x7FFE, SPACE.first >> 32))
    assert relocate("n", captured(words), KNOWING).block == block(2)
    with pytest.raises(GraphError, match="depends on addresses"):
        relocate("n", captured(words), PLACES)


@pytest.mark.parametrize("stride", [1, 256, 4096, 0x7F00])
def test_a_number_above_what_nobody_wrote_is_kept(stride: int) -> None:
    """torch's TensorInfo: its last size is unset, the first stride follows in the same word.

    With a stride of 256 and more the word looks like an address of the process.
    """
    noise = (0x1234_5678, 0x0BAD_F00D, 0x8765_4321)
    found = relocate("n", captured(tuple(stride << 32 | low for low in noise)), PLACES)
    assert found.block == block(stride << 32)


def test_an_address_in_a_region_that_is_another_one_in_each_run_is_told() -> None:
    """Dead memory, or a model that places its tensors by chance: the proof decides."""
    words = (SPACE.first + 64, SPACE.second + 64, SPACE.first + 128)
    found = relocate("n", captured((1, 1, 1), words), PLACES)
    (told,) = found.unsteady
    assert told.startswith("byte 8 was first 0x620000200040 (not known); second 0x70f000600040")
    assert told.endswith("again 0x620000200080 (not known)")
    assert found.pointers == ()


def test_a_field_beside_padding_is_kept() -> None:
    """An int32 and four bytes that nobody wrote share a word."""
    found = relocate(
        "n", captured((0xAAAA_AAAA_0000_0005, 0x5555_5555_0000_0005, 0x0F0F_0F0F_0000_0005)), PLACES
    )
    assert found.block == block(5)
    assert found.noise == 4


def test_a_flag_beside_padding_is_kept() -> None:
    found = relocate("n", captured((0xA5A5_A501, 0x5A5A_5A01, 0x3C3C_3C01)), PLACES)
    assert found.block == block(1)


def test_what_an_address_left_above_a_small_number_becomes_zero() -> None:
    first, second = ((base >> 32 << 32) | 2 for base in (WEIGHTS.first, WEIGHTS.second))
    found = relocate("n", captured((first, second, first)), PLACES)
    assert (found.block, found.pointers, found.noise) == (block(2), (), 2)


def test_what_an_address_left_below_a_number_becomes_zero() -> None:
    first, second = (
        (256 << 32) | (base + 64) & 0xFFFF_FFFF for base in (SPACE.first, SPACE.second)
    )
    found = relocate("n", captured((first, second, first)), PLACES)
    assert (found.block, found.pointers, found.noise) == (block(256 << 32 | 64), (), 1)


@pytest.mark.parametrize("half", [0, 32])
def test_what_an_address_left_behind_a_field_of_one_byte_becomes_zero(half: int) -> None:
    """A type of one byte over the lower half of an old address, beside a size of four bytes."""
    first, second = (
        (((base + 0x4_2000) & 0xFFFF_FF00 | 6) << half) | 4 << (32 - half)
        for base in (WEIGHTS.first, WEIGHTS.second)
    )
    found = relocate("n", captured((first, second, first)), PLACES)
    kept = int.from_bytes(found.block, "little")
    assert kept & (0xFF << half | 0xFFFF_FFFF << (32 - half)) == 6 << half | 4 << (32 - half)
    assert found.pointers == ()
    assert found.noise > 0


@pytest.mark.parametrize(
    ("first", "second"),
    [(0x8620, 0xCCA0), (0x1A40, 0xDE60), (0xC080, 0x8E80), (0xE0C0, 0x18C0)],
)
def test_what_a_page_elsewhere_left_behind_a_field_becomes_zero(first: int, second: int) -> None:
    """As an H200 showed it in a copy that widens: type 6 (float) above a size of 4 bytes."""
    words = [top << 48 | 6 << 32 | 4 for top in (first, second)]
    found = relocate("n", captured((words[0], words[1], words[0])), PLACES)
    kept = int.from_bytes(found.block, "little")
    assert (kept & 0xFF_FFFF_FFFF, found.pointers) == (6 << 32 | 4, ())
    assert found.noise > 0


def test_what_the_driver_put_behind_the_regions_is_dead_and_told() -> None:
    """As an H200 showed it: an address that no region has, and that the driver does not tell."""
    triple = (0x6022_E707_0000, 0x4022_E707_0000, 0x6022_E707_0000)
    found = relocate("n", captured(triple), KNOWING)
    assert (found.pointers, len(found.unsteady)) == ((), 1)
    with pytest.raises(GraphError, match="outside the recorded regions"):
        relocate("n", captured(triple, live=frozenset({0})), KNOWING)


@pytest.mark.parametrize("capture", range(3))
def test_an_address_that_is_live_in_one_capture_and_does_not_differ_at_one_place_is_refused(
    capture: int,
) -> None:
    live = tuple(frozenset({0}) if one == capture else NONE for one in range(3))
    words = captured((0x7F12_E0C0_0000, 0x7F12_18C0_0000, 0x7F12_E0C0_0000))
    with pytest.raises(GraphError, match="outside the recorded regions"):
        relocate("n", replace(words, live=live), PLACES)


def test_an_address_that_differs_at_one_place_is_refused_if_it_is_live_in_every_capture() -> None:
    """What a kernel reads is there in each; a number may be one in some by chance."""
    words = captured((0x7F12_E0C0_0000, 0x7F12_E0C0_0000, 0x7F34_18C0_0000))
    live = frozenset({0})
    assert relocate("n", replace(words, live=(live, live, NONE)), PLACES).pointers == ()
    with pytest.raises(GraphError, match="outside the recorded regions"):
        relocate("n", replace(words, live=(live, live, live)), PLACES)


def test_a_pointer_across_two_words_is_told_with_its_place() -> None:
    """No kernel has one: it looks like an old address that fields of four bytes lie beside."""

    def straddling(address: int) -> bytes:
        return bytes(12) + struct.pack("<Q", address) + bytes(4)

    first, second = straddling(WEIGHTS.first + 64), straddling(WEIGHTS.second + 64)
    found = relocate("n", Captured(first, second, first), PLACES)
    assert [told.split(" was ")[0] for told in found.unsteady] == ["byte 8", "byte 16"]
    assert found.pointers == ()


def test_a_word_that_moves_by_another_regions_distance_is_no_pointer() -> None:
    found = relocate("n", captured((WEIGHTS.first, SPACE.second, WEIGHTS.first)), PLACES)
    assert (found.pointers, len(found.unsteady)) == ((), 1)


def test_an_address_that_stays_in_a_region_is_refused() -> None:
    with pytest.raises(GraphError, match="stays while its region moves"):
        relocate("n", captured((SPACE.first, SPACE.first, SPACE.first)), PLACES)


def test_a_constant_in_memory_outside_is_refused() -> None:
    address = 0x7F00_0000_0000
    triple = (address, address, address)
    assert relocate("n", captured(triple), PLACES).block == block(address)
    with pytest.raises(GraphError, match="outside the recorded regions"):
        relocate("n", captured(triple, live=frozenset({0})), PLACES)


def test_blocks_of_two_sizes_are_refused() -> None:
    with pytest.raises(GraphError, match="changes its size"):
        relocate("n", Captured(bytes(8), bytes(16), bytes(8)), PLACES)


def test_a_tail_shorter_than_a_word_is_kept() -> None:
    found = relocate("n", Captured(b"\x01\x02\x03", b"\x01\x02\x03", b"\x01\x02\x03"), PLACES)
    assert found.block == b"\x01\x02\x03"
