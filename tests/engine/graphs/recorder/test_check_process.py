"""Where a proof puts the regions: nowhere that a capture could have made the same numbers of."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from vcc.engine.graphs.recorder import check_process
from vcc.engine.graphs.recorder.addresses import FIRST, SECOND, WISHES, Addresses

SIZES = (5_000_192, 70 << 20, 12_345, 0)


def placed(
    monkeypatch: pytest.MonkeyPatch, start: int, sizes: tuple[int, ...]
) -> tuple[list[int], int]:
    """Bases of the regions, and the end of what was allocated at `start`."""
    ends: list[int] = []

    def allocate(size: int) -> Any:
        ends.append(start + size)
        return nullcontext(SimpleNamespace(address=start))

    monkeypatch.setattr(check_process, "DeviceBytes", allocate)
    with ExitStack() as stack:
        bases = check_process._memory(sizes, stack)
    (end,) = ends
    return bases, end


@pytest.mark.parametrize("start", [0x7F00_0000_0000, 0x7F00_0000_0200, 0x3_0200_4E00])
def test_regions_lie_at_odd_multiples_of_1024_in_the_opposite_order(
    monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """Drivers give small blocks at odd multiples of 512, where captures have their regions."""
    bases, end = placed(monkeypatch, start, SIZES)
    assert [base % 2048 for base in bases] == [1024] * 4
    assert bases == sorted(bases, reverse=True)
    for base, size, after in zip(bases, SIZES, [end, *bases], strict=False):
        assert start <= base
        assert base + size <= after


@pytest.mark.parametrize("modulus", [1 << bits for bits in range(10, 17)])
def test_no_address_has_the_remainder_that_it_had_in_both_captures(
    monkeypatch: pytest.MonkeyPatch, modulus: int
) -> None:
    """Such a number looks constant and is none; a replay at the same remainder would hide it."""
    proven, _ = placed(monkeypatch, 0x7F00_0000_0200, SIZES)
    first, second = (
        Addresses.at(WISHES[name][0], name, (1 << 30,) * 4).bases for name in (FIRST, SECOND)
    )
    for one, other, here in zip(first, second, proven, strict=True):
        if one % modulus == other % modulus:
            assert here % modulus != one % modulus
