"""The arena's allocations and ranges: addresses, memory under them, limits, and the off switch."""

from __future__ import annotations

import random

import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena

from vcc.cache.errors import DeviceError, UsageError

MIB = 1 << 20
GIB = 1 << 30


def test_addresses_are_aligned_apart_and_usable(arena: RawArena) -> None:
    blocks = [(arena.filled(size, "weights", i + 1), size) for i, size in enumerate(SIZES)]
    for i, (address, size) in enumerate(blocks):
        assert address % 512 == 0
        assert arena.read(address, size) == bytes([i + 1]) * size


SIZES = (0, 1, 511, 512, 513, 100_000, MIB - 1, MIB, 3 * MIB + 5, 33 * MIB)


def test_a_freed_block_is_merged_with_its_neighbours_and_used_again(arena: RawArena) -> None:
    first, second, third = (arena.allocate(300 * 1024, "a") for _ in range(3))
    arena.free(first)
    arena.free(third)
    arena.free(second)
    assert arena.allocate(900 * 1024, "a") == first
    stats = arena.stats()
    assert (stats["allocations"], stats["frees"], stats["live"]) == (4, 3, 900 * 1024)


def test_memory_is_mapped_on_demand_cached_and_given_back_by_trim(arena: RawArena) -> None:
    address = arena.allocate(10 * MIB, "a")
    assert arena.stats()["mapped"] == 10 * MIB
    arena.free(address)
    assert arena.stats()["mapped"] == 10 * MIB
    assert arena.available() == GIB
    assert arena.trim() == 10 * MIB
    stats = arena.stats()
    assert (stats["mapped"], stats["live"], stats["peak_mapped"]) == (0, 0, 10 * MIB)


def test_what_was_not_given_cannot_be_freed(arena: RawArena) -> None:
    address = arena.allocate(100, "a")
    arena.free(address)
    for wrong in (address, address + 512, 0, 1 << 46):
        with pytest.raises(UsageError, match="cannot free memory"):
            arena.free(wrong)


def test_cached_pages_are_given_back_before_memory_runs_out(arena: RawArena) -> None:
    arena.free(arena.allocate(700 * MIB, "a"))
    arena.allocate(600 * MIB, "b")
    assert arena.stats()["mapped"] < 700 * MIB


def test_out_of_memory_is_said_and_changes_nothing(arena: RawArena) -> None:
    kept = arena.filled(MIB, "a", 7)
    before = arena.stats()
    with pytest.raises(DeviceError, match="cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY"):
        arena.allocate(2 * GIB, "a")
    after = arena.stats()
    assert {k: v for k, v in after.items() if k != "reserved"} == {
        k: v for k, v in before.items() if k != "reserved"
    }
    assert arena.read(kept, MIB) == b"\7" * MIB
    arena.allocate(900 * MIB, "a")


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemSetAccess"])
@pytest.mark.parametrize("nth", [1, 3])
def test_an_allocation_that_fails_halfway_leaves_no_memory_behind(
    fake: Fake, arena: RawArena, call: str, nth: int
) -> None:
    arena.filled(5 * MIB, "a", 1)  # a region is reserved, and one chunk half used
    before = arena.stats()["mapped"]
    fake.fail(call, nth if call != "cuMemSetAccess" else 1, code=1)
    with pytest.raises(DeviceError, match=f"{call} failed"):
        arena.allocate(20 * MIB, "a")
    assert arena.stats()["mapped"] == before
    assert arena.filled(20 * MIB, "a", 2)


def test_blocks_never_overlap_whatever_the_order(arena: RawArena) -> None:
    draw, blocks = random.Random(3), {}
    for step in range(600):
        if blocks and draw.random() < 0.45:
            address = draw.choice(list(blocks))
            size, byte = blocks.pop(address)
            assert arena.read(address, size) == bytes([byte]) * size
            arena.free(address)
        else:
            size = int(2 ** draw.uniform(5, 21))
            blocks[arena.filled(size, draw.choice("ab"), step % 251)] = (size, step % 251)
        if step % 100 == 99:
            arena.trim()
    for address, (size, byte) in blocks.items():
        assert arena.read(address, size) == bytes([byte]) * size


def test_a_range_keeps_its_addresses_while_parts_of_it_have_memory(arena: RawArena) -> None:
    base = arena.reserve_range(4 * GIB, 4 * MIB, "kv_cache")
    assert arena.range(base) == (4 * MIB, 0)
    arena.map_range(base, 0, 64 * MIB)
    arena.map_range(base, 60 * MIB, 8 * MIB)
    assert arena.range(base) == (4 * MIB, 68 * MIB)
    arena.write(base + 67 * MIB, b"here")
    arena.unmap_range(base, 0, 64 * MIB)
    assert arena.range(base) == (4 * MIB, 4 * MIB)
    assert arena.read(base + 67 * MIB, 4) == b"here"
    with pytest.raises(DeviceError):
        arena.read(base, 4)
    arena.free_range(base)
    assert arena.stats()["mapped"] == 0


def test_a_range_beyond_the_memory_maps_nothing(arena: RawArena) -> None:
    base = arena.reserve_range(4 * GIB, 0, "kv_cache")
    chunk, _ = arena.range(base)
    arena.map_range(base, 0, chunk)
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
        arena.map_range(base, 0, 2 * GIB)
    assert arena.range(base) == (chunk, chunk)


@pytest.mark.parametrize(("offset", "size"), [(1, 2 * MIB), (0, 3 * MIB), (8 * MIB, 4 * MIB)])
def test_parts_of_chunks_are_refused(arena: RawArena, offset: int, size: int) -> None:
    base = arena.reserve_range(9 * MIB, 2 * MIB, "kv_cache")
    with pytest.raises(UsageError, match="cannot map part of a range"):
        arena.map_range(base, offset, size)
    arena.map_range(base, 8 * MIB, MIB)  # up to the end


def test_with_the_switch_off_memory_is_plain(fake: Fake, device: int) -> None:
    plain = RawArena(device, enabled=False)
    address = plain.filled(5 * MIB, "weights", 1)
    base = plain.reserve_range(8 * MIB, 0, "kv_cache")
    plain.map_range(base, 0, 8 * MIB)
    assert (fake.count("cuMemAlloc"), fake.count("cuMemCreate")) == (2, 0)
    for sleep in (lambda: plain.sleep(1, ""), lambda: plain.wake(""), lambda: plain.discard("")):
        with pytest.raises(UsageError, match="arena is off"):
            sleep()
    plain.free(address)
    plain.free_range(base)
    assert plain.stats()["live"] == 0
    plain.close()


def test_a_device_without_virtual_memory_is_told(
    fake: Fake, device: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.fail("cuDeviceGetAttribute", code=1)
    with pytest.raises(DeviceError, match="cuDeviceGetAttribute"):
        RawArena(device)


def test_closing_gives_everything_back(fake: Fake, device: int) -> None:
    made = RawArena(device)
    made.allocate(100 * MIB, "a")
    made.map_range(made.reserve_range(64 * MIB, 0, "kv_cache"), 0, 64 * MIB)
    made.close()
    again = RawArena(device)
    assert again.available() == GIB
    again.close()
