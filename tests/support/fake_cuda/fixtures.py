"""Fixtures for tests on the libcuda double inside the test process: import them in a conftest.

A process keeps the first driver that it opened: tests on a real device run in another process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from vcc.engine import native

from . import Fake

DEVICE = native.functions(
    {
        "vcc_device_open": "str i32 -> ptr",
        "vcc_device_close": "ptr",
        "vcc_device_info": "ptr -> str",
        "vcc_device_synchronize": "ptr",
        "vcc_device_write": "ptr ptr buffer u64",
        "vcc_device_read": "ptr ptr buffer u64",
        "vcc_device_fill": "ptr ptr u32 u64",
    }
)


@pytest.fixture
def fake() -> Iterator[Fake]:
    """The double as a new process finds it."""
    if native.library("vcc_abi") is None:
        pytest.skip("built without a compiler")
    made = Fake()
    made.reset()
    made.clear()
    yield made
    made.clear()


@pytest.fixture
def device(fake: Fake) -> Iterator[int]:
    """A handle of device 0 on the double."""
    opened = DEVICE.vcc_device_open(fake.path, 0)
    fake.clear()
    yield opened
    DEVICE.vcc_device_close(opened)


ARENA = native.functions(
    {
        "vcc_arena_open": "ptr u32 -> ptr",
        "vcc_arena_close": "ptr",
        "vcc_arena_allocate": "ptr u64 str -> u64",
        "vcc_arena_free": "ptr u64",
        "vcc_arena_reserve_range": "ptr u64 u64 str -> u64",
        "vcc_arena_map_range": "ptr u64 u64 u64",
        "vcc_arena_unmap_range": "ptr u64 u64 u64",
        "vcc_arena_range": "ptr u64 -> u64 u64",
        "vcc_arena_free_range": "ptr u64",
        "vcc_arena_available": "ptr -> u64",
        "vcc_arena_sleep": "ptr i32 str",
        "vcc_arena_wake": "ptr str",
        "vcc_arena_discard": "ptr str",
        "vcc_arena_trim": "ptr -> u64",
        "vcc_arena_version": "ptr -> u64",
        "vcc_arena_require": "ptr str u32 str",
        "vcc_arena_mark_filled": "ptr str",
        "vcc_arena_stats": "ptr -> str",
        "vcc_arena_ring": "ptr u32 u64",
        "vcc_arena_times": "ptr -> str",
    }
)


class RawArena:
    """The C ABI of an arena with little around it, and the bytes behind its addresses."""

    def __init__(self, device: int, enabled: bool = True) -> None:
        self.device = device
        self.handle = ARENA.vcc_arena_open(device, int(enabled))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """`arena.allocate(...)` is `vcc_arena_allocate(handle, ...)`."""
        return partial(getattr(ARENA, f"vcc_arena_{name}"), self.handle)

    def stats(self) -> dict[str, Any]:
        """The counters as a dictionary."""
        found: dict[str, Any] = json.loads(ARENA.vcc_arena_stats(self.handle))
        return found

    def filled(self, size: int, tag: str, byte: int) -> int:
        """An allocation with every byte set."""
        address: int = self.allocate(size, tag)
        DEVICE.vcc_device_fill(self.device, address, byte, size)
        return address

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the device."""
        data = bytearray(size)
        DEVICE.vcc_device_read(self.device, address, data, size)
        return bytes(data)

    def write(self, address: int, data: bytes) -> None:
        """Bytes to the device."""
        DEVICE.vcc_device_write(self.device, address, data, len(data))


@pytest.fixture
def arena(device: int) -> Iterator[RawArena]:
    """An arena on the double's device, which has 1 GiB."""
    made = RawArena(device)
    yield made
    ARENA.vcc_arena_close(made.handle)
