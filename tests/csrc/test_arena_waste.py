"""Mapped against live bytes after trim, over series of 100,000 operations."""

from __future__ import annotations

import pytest
from support.allocations import SERIES, worst_waste
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import DEVICE, RawArena


@pytest.mark.parametrize("series", SERIES)
def test_little_is_mapped_beyond_what_lives(
    fake: Fake, series: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCC_FAKE_MEMORY", str(32 << 30))
    device = DEVICE.vcc_device_open(fake.path, 0)
    arena = RawArena(device)

    def ratio() -> float:
        arena.trim()
        stats = arena.stats()
        return float(stats["mapped"] / stats["live"])

    worst = worst_waste(SERIES[series], lambda n: arena.allocate(n, "weights"), arena.free, ratio)
    print(f"{series}: worst mapped / live {worst:.3f}")
    arena.trim()
    assert arena.stats()["mapped"] == 0
    arena.close()
    DEVICE.vcc_device_close(device)
    assert worst <= 1.25
