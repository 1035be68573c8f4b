"""Addresses of captures: wishes in turn, odd bases, and what is said when all are refused."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import pytest

from vcc.cache.errors import DeviceError
from vcc.engine.graphs.recorder.addresses import (
    AGAIN,
    ANYWHERE,
    FIRST,
    PAGE,
    SECOND,
    WISHES,
    Addresses,
    place,
)

REGIONS, FREE = (3 << 30, 1 << 30, 5000), 140 << 30


class FakeDriver:
    """Grants wishes below a size; others get the next of its own places."""

    def __init__(self, refused: tuple[int, ...] = (), most: int = 1 << 50) -> None:
        self.refused, self.most = refused, most
        self.own = 0x7000 << 32
        self.asked: list[tuple[int, int]] = []

    def __call__(self, wanted: int, size: int) -> int:
        self.asked.append((wanted, size))
        if size > self.most:
            raise DeviceError("cuMemAddressReserve failed", "CUDA_ERROR_OUT_OF_MEMORY")
        if wanted != ANYWHERE and wanted not in self.refused:
            return wanted
        self.own += 1 << 40
        return self.own - (1 << 40)


def test_the_first_wish_is_taken_where_the_driver_grants_it() -> None:
    driver = FakeDriver()
    found = place(FIRST, REGIONS, FREE, None, driver)
    assert found.start == WISHES[FIRST][0] == 0x6000_0000_0000
    assert len(driver.asked) == 1
    (_, size), *_ = driver.asked
    assert size % PAGE == 0
    assert sum(REGIONS) + FREE < size < sum(REGIONS) + FREE + (1 << 30)


def test_pools_are_odd_apart_and_large_enough() -> None:
    first = place(FIRST, REGIONS, FREE, None, FakeDriver())
    second = place(SECOND, REGIONS, FREE, first, FakeDriver())
    assert not first.meets(second)
    for found in (first, second):
        for base, size, region in zip(found.bases, found.sizes, (*REGIONS, FREE), strict=True):
            assert base % 512 == 0
            assert base // 512 % 2 == 1
            assert base // PAGE % 2 == 1
            assert size >= region
        ends = [base + size for base, size in zip(found.bases, found.sizes, strict=True)]
        assert all(b // PAGE > a // PAGE + 1 for a, b in zip(ends, found.bases[1:], strict=False))
    moved = [b - a for a, b in zip(first.bases, second.bases, strict=True)]
    assert all(a != b for a, b in combinations(moved, 2)), "distances of regions differ too"
    assert all(a < b for a, b in pairwise(first.bases))


def test_refused_wishes_are_followed_by_others() -> None:
    driver = FakeDriver(refused=WISHES[FIRST][:2])
    assert place(FIRST, REGIONS, FREE, None, driver).start == WISHES[FIRST][2]


def test_a_driver_that_grants_no_wish_chooses_itself() -> None:
    driver = FakeDriver(refused=WISHES[FIRST] + WISHES[SECOND])
    first = place(FIRST, REGIONS, FREE, None, driver)
    assert first.start >= 0x7000 << 32
    driver.own = first.start  # another process: the same choice at first
    assert not place(SECOND, REGIONS, FREE, first, driver).meets(first)


def test_a_smaller_workspace_is_better_than_none() -> None:
    found = place(FIRST, REGIONS, FREE, None, FakeDriver(most=64 << 30))
    assert FREE // 4 <= found.sizes[-1] < FREE // 2


def test_the_third_capture_lies_where_the_first_did_or_nowhere(tmp_path: Path) -> None:
    first = place(FIRST, REGIONS, FREE, None, FakeDriver(refused=WISHES[FIRST][:1]))
    assert place(AGAIN, REGIONS, 1 << 30, first, FakeDriver()) == first
    with pytest.raises(DeviceError, match=f"at {first.start:#x}: the driver gave 0x7"):
        place(AGAIN, REGIONS, FREE, first, FakeDriver(refused=(first.start,)))


def test_every_refused_wish_is_named_with_what_the_driver_said() -> None:
    with pytest.raises(DeviceError) as caught:
        place(FIRST, REGIONS, FREE, None, FakeDriver(most=1))
    assert all(
        f"at {wish:#x}: cuMemAddressReserve failed" in caught.value.why for wish in WISHES[FIRST]
    )


def test_what_lies_at_a_refused_place_is_named() -> None:
    line = next(one for one in Path("/proc/self/maps").read_text().splitlines() if "[stack]" in one)
    start = int(line.split("-")[0], 16) // PAGE * PAGE
    there = Addresses.at(start, FIRST, (PAGE, PAGE, PAGE, PAGE))
    with pytest.raises(DeviceError, match=r"\[stack\]|rw-p"):
        place(AGAIN, REGIONS, FREE, there, FakeDriver(refused=(start,)))


@pytest.mark.parametrize("wish", WISHES[SECOND][:3], ids=hex)
def test_what_is_written_over_the_fifth_byte_of_an_address_shows(wish: int) -> None:
    """Whatever is carried into it: else a flag there goes with an old address of a region."""
    apart = (wish - WISHES[FIRST][0] >> 32) % 256
    assert 1 < apart < 255
