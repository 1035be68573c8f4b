"""Structures over dead stack: no field is changed, no dead byte refused, no live address let by.

A structure is what its fields say; between and behind them stand bytes of old addresses, whole or
written over in part, at the places where captures have them: processes are spread (spread.py), the
driver's own memory may follow the regions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.addresses import AGAIN, FIRST, NAMES, SECOND, WISHES, Addresses
from vcc.engine.graphs.recorder.known import Known
from vcc.engine.graphs.recorder.mappings import Mapping
from vcc.engine.graphs.recorder.places import Move, Places
from vcc.engine.graphs.recorder.spread import SPREADS
from vcc.engine.graphs.recorder.words import NONE, Captured, relocate

SIZES = (5 << 20, 70 << 20, 3 << 20, 139 << 30)
USED = (5_000_192, 70 << 20, 12_345, 300 << 20)
POOLS = {
    name: Addresses.at(WISHES[FIRST if name == AGAIN else name][0], name, SIZES) for name in NAMES
}
HEAP = Mapping(0x5580_0000_0000, 0x5590_0000_0000, "[heap]")
STACK = Mapping(0x7FFE_0000_0000, 0x7FFE_0080_0000, "[stack]")
MOVES = tuple(
    Move(index, POOLS[FIRST].bases[index], POOLS[SECOND].bases[index], size)
    for index, size in enumerate(USED)
)
LOW = (
    Mapping(0x2_0000_0000, 0x2_0060_0000, "/dev/nvidiactl"),
    Mapping(0x100_0000_0000, 0x104_0000_0000, "of no file"),
)
"""What CUDA has mapped in every process."""
KNOWN = tuple(Known(POOLS[name], (*LOW, HEAP, STACK)) for name in NAMES)
PLACES = Places(MOVES, (KNOWN[0], KNOWN[1], KNOWN[2]))
ELSEWHERE = (0x1_2340_0200, 0x7A00_0000_0600, 0x3_0000_4A00, 0x5555_5000_1200)
"""Bases of the regions where a table is loaded: multiples of 512, as it was promised."""

Triple = tuple[int, int, int]


def in_host(lowest: int, highest: int, far: int, unit: int) -> st.SearchStrategy[Triple]:
    """An address of the process: the second capture may have another one, the third has."""
    spots = st.integers(lowest // unit, highest // unit).map(lambda at: at * unit)
    apart = MOST_APART // unit
    others = st.one_of(st.just(0), st.integers(-apart, apart).map(lambda by: by * unit))
    return st.tuples(spots, others).map(lambda one: (one[0], one[0] + one[1], one[0] - far))


MOST_APART = 64 << 20
"""Bytes between what the first two captures left, where they did not do quite the same."""


def in_driver() -> st.SearchStrategy[Triple]:
    """What follows the regions wherever they lie, given out in units of 64 KiB."""
    ends = (POOLS[FIRST].end, POOLS[SECOND].end)
    behind = st.tuples(*(st.integers(0, 1 << 14).map(lambda at: at << 16) for _ in ends))
    aligned = tuple(-(-end >> 16) << 16 for end in ends)
    return behind.map(lambda by: (aligned[0] + by[0], aligned[1] + by[1], aligned[0] + by[0]))


def in_a_region() -> st.SearchStrategy[Triple]:
    spots = st.sampled_from(MOVES).flatmap(
        lambda move: st.integers(0, move.size - 1).map(lambda at: (move, at))
    )
    return spots.map(
        lambda one: (one[0].first + one[1], one[0].second + one[1], one[0].first + one[1])
    )


FAR = SPREADS[FIRST]
DEAD = st.one_of(
    st.just((0, 0, 0)),
    in_host(0x2000_0000, 0x8000_0000, FAR.heap, 16),
    in_host(HEAP.start + (1 << 30), HEAP.end - (1 << 30), FAR.heap, 16),
    in_host(STACK.start + (1 << 20), STACK.end - (1 << 20), 0x1_2350, 16),
    in_host(0x7F20_0000_0000, 0x7F90_0000_0000, FAR.mapped, 4096),
    in_host(0x7A20_0000_0000, 0x7A50_0000_0000, FAR.device, 2 << 20),
    in_driver(),
    in_a_region(),
)
"""Old addresses: of nothing, heaps, stack, libraries, device memory that was freed, the driver."""


@dataclass(frozen=True)
class Field:
    """A number of 1 to 8 bytes at its alignment, or an address in a region."""

    size: int
    value: int
    region: int | None = None

    def at(self, capture: int) -> bytes:
        base = 0 if self.region is None else POOLS[NAMES[capture]].bases[self.region]
        return (base + self.value).to_bytes(self.size, "little")

    def loaded(self) -> bytes:
        base = 0 if self.region is None else ELSEWHERE[self.region]
        return (base + self.value).to_bytes(self.size, "little")


def numbers(size: int) -> st.SearchStrategy[Field]:
    likely = st.sampled_from([0, 1, 2, 5, 64, 127, 128, 255, 256, 4096, 65536, 1 << 31, 2**63])
    value = st.one_of(likely, st.integers(0, 2**32)).map(lambda one: one % (1 << 8 * size))
    return value.map(lambda one: Field(size, one))


POINTERS = st.integers(0, len(MOVES) - 1).flatmap(
    lambda region: st.integers(0, USED[region] - 1).map(lambda at: Field(8, at, region))
)
HALVES = st.one_of(
    st.just(()),
    st.lists(numbers(1), min_size=1, max_size=4).map(tuple),
    numbers(2).map(lambda one: (one,)),
    numbers(4).map(lambda one: (one,)),
)
"""Fields from the beginning of four bytes on; what is behind them is padding."""
WORDS = st.one_of(
    POINTERS.map(lambda one: ((one,),)),
    numbers(8).map(lambda one: ((one,),)),
    st.tuples(HALVES, HALVES),
)
Word = Sequence[Sequence[Field]]


@st.composite
def structures(draw: Callable[..., object]) -> tuple[list[Word], tuple[bytes, bytes, bytes]]:
    """Words, and the three blocks: fields over old addresses at multiples of 4 bytes."""
    words: list[Word] = draw(st.lists(WORDS, min_size=1, max_size=12))  # type: ignore[assignment]
    shift: int = draw(st.sampled_from([0, 4]))  # type: ignore[assignment]
    dead: list[Triple] = draw(  # type: ignore[assignment]
        st.lists(DEAD, min_size=len(words) + 1, max_size=len(words) + 1)
    )
    blocks = []
    for capture in range(3):
        block = bytearray(struct.pack(f"<{len(dead)}Q", *(one[capture] for one in dead))[shift:])
        for at, field in placed(words):
            block[at : at + field.size] = field.at(capture)
        blocks.append(bytes(block[: 8 * len(words)]))
    return words, (blocks[0], blocks[1], blocks[2])


def placed(words: Sequence[Word]) -> list[tuple[int, Field]]:
    found = []
    for index, word in enumerate(words):
        for half, fields in enumerate(word):
            at = 8 * index + 4 * half
            for field in fields:
                found.append((at, field))
                at += field.size
    return found


def value_at(block: bytes, at: int) -> int:
    return int.from_bytes(block[at : at + 8], "little")


def live_of(blocks: Sequence[bytes]) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """What the driver says: memory is there in the regions, as far as they are used."""
    first, second, again = (
        frozenset(at for at in range(0, len(one), 8) if PLACES.in_region(value_at(one, at)))
        for one in blocks
    )
    return first, second, again


@given(structures())
def test_fields_come_back_at_a_third_place_and_dead_bytes_are_no_refusal(
    made: tuple[list[Word], tuple[bytes, bytes, bytes]],
) -> None:
    words, blocks = made
    found = relocate("n", Captured(*blocks, live=live_of(blocks)), PLACES)
    loaded = bytearray(found.block)
    for at, region, offset in found.pointers:
        loaded[at : at + 8] = struct.pack("<Q", ELSEWHERE[region] + offset)
    for at, field in placed(words):
        assert bytes(loaded[at : at + field.size]) == field.loaded(), (at, field)


OUTSIDE = st.one_of(
    in_host(0x7A00_0000_0000, 0x7B00_0000_0000, FAR.device, 256),
    in_driver(),
    st.integers(0x7A00_0000, 0x7B00_0000).map(lambda at: (at << 16, at << 16, at << 16)),
)
"""Memory outside the regions: further on, behind them, or where it always is."""


@given(structures(), OUTSIDE)
def test_an_address_of_present_memory_outside_is_refused_whatever_stands_beside_it(
    made: tuple[list[Word], tuple[bytes, bytes, bytes]], outside: Triple
) -> None:
    _, blocks = made
    at = len(blocks[0])
    blocks = tuple(  # type: ignore[assignment]
        block + struct.pack("<Q", value) for block, value in zip(blocks, outside, strict=True)
    )
    live = tuple(one | {at} for one in live_of(blocks))
    with pytest.raises(GraphError, match=rf"byte {at} .*outside the recorded regions"):
        relocate("n", Captured(*blocks, live=(live[0], live[1], live[2])), PLACES)


DERIVED = st.tuples(st.integers(0, 4095), st.integers(0, 4095)).filter(lambda one: one[0] != one[1])
"""Numbers made of addresses modulo 4,096 or less, in the first two captures."""


@given(structures(), DERIVED, numbers(4), st.booleans())
def test_a_number_made_of_an_address_is_refused_whatever_stands_beside_it(
    made: tuple[list[Word], tuple[bytes, bytes, bytes]],
    derived: tuple[int, int],
    beside: Field,
    below: bool,
) -> None:
    _, blocks = made
    at = len(blocks[0])
    pairs = [(number, beside.value)[:: 1 if below else -1] for number in (*derived, derived[0])]
    blocks = tuple(  # type: ignore[assignment]
        block + struct.pack("<2I", *pair) for block, pair in zip(blocks, pairs, strict=True)
    )
    with pytest.raises(GraphError, match=rf"byte {at} .*depends on addresses"):
        relocate("n", Captured(*blocks, live=live_of(blocks)), PLACES)


def test_a_refusal_says_what_each_capture_knew() -> None:
    behind = tuple(POOLS[name].end + 0x7_0000 for name in NAMES)
    blocks = [struct.pack("<Q", value) for value in behind]
    with pytest.raises(GraphError) as caught:
        relocate("n", Captured(*blocks, live=(frozenset({0}), NONE, NONE)), PLACES)
    for value in behind[:2]:
        assert f"{value:#x} (0x70000 behind the pools" in caught.value.why
    assert "0x70000 behind the pools, live)" in caught.value.why
    small = [struct.pack("<Q", value) for value in (0x186, 0x1CC, 0x186)]
    with pytest.raises(GraphError, match=r"first 0x186 \(not known\); second 0x1cc"):
        relocate("n", Captured(small[0], small[1], small[2]), PLACES)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (POOLS[FIRST].bases[3] + 0x40, "pool WORKSPACE + 0x40"),
        (POOLS[FIRST].bases[0] - 8, "between pools"),
        (POOLS[FIRST].start - 0x10, "0x10 before the pools"),
        (STACK.start + 0x20, "[stack] + 0x20"),
        (5, ""),
    ],
)
def test_an_address_is_told_by_where_it_lies(value: int, text: str) -> None:
    assert KNOWN[0].tell(value) == text
