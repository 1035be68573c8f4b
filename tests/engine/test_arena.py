"""vcc.Arena on the libcuda double: tags, sleep and wake, counters, and its life."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import DEVICE, fake

import vcc.engine.arena as module
from vcc.cache.errors import DeviceError, UsageError
from vcc.engine.arena import Arena, MemoryShortage

__all__ = ["fake"]
MIB = 1 << 20


@pytest.fixture
def arena(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    monkeypatch.setenv("VCC_LIBCUDA", fake.path)
    with Arena() as made:
        yield made


def test_sleep_and_wake_keep_contents_and_addresses(arena: Arena) -> None:
    address = arena.allocate(MIB, "weights")
    dropped = arena.allocate(MIB, "kv_cache")
    for place in (address, dropped):
        DEVICE.vcc_device_write(arena.device_handle, place, b"text", 4)
    free = arena.available()
    arena.sleep()
    assert arena.available() > free
    assert arena.stats.tags["weights"].asleep
    arena.wake(["weights"])
    assert arena.stats.tags["kv_cache"].asleep
    arena.wake()
    found = bytearray(4)
    DEVICE.vcc_device_read(arena.device_handle, address, found, 4)
    assert found == b"text"
    assert not arena.stats.tags["kv_cache"].filled
    assert arena.stats.wakes == 2


def test_a_shortage_is_a_runtime_error_and_a_retry_works(fake: Fake, arena: Arena) -> None:
    arena.allocate(9 * MIB, "weights")
    arena.sleep()
    fake.fail("cuMemCreate", nth=2)
    with pytest.raises(RuntimeError, match="OUT_OF_MEMORY") as caught:
        arena.wake()
    assert isinstance(caught.value, MemoryShortage)
    assert caught.value.exit == 3
    assert arena.stats.tags["weights"].asleep
    arena.wake()
    fake.fail("cuMemcpyDtoHAsync")
    with pytest.raises(MemoryShortage, match="cuMemcpyDtoHAsync"):
        arena.sleep()
    assert not arena.stats.tags["weights"].asleep


def test_discard_trim_and_free(arena: Arena) -> None:
    address = arena.allocate(3 * MIB, "mine")
    arena.discard(["mine"])
    arena.wake()
    assert not arena.stats.tags["mine"].filled
    arena.mark_filled("mine")
    assert arena.stats.tags["mine"].filled
    arena.free(address)
    assert arena.trim() >= 3 * MIB
    with pytest.raises(UsageError):
        arena.free(address)


@pytest.mark.parametrize("call", [Arena.discard, Arena.wake, lambda one, tags: one.sleep(2, tags)])
@pytest.mark.parametrize("tags", [[], ["weightz"], ["weights", "mine"], "weight", ""])
def test_no_tag_and_one_that_nothing_has_are_refused_and_change_nothing(
    arena: Arena, call: Any, tags: Any
) -> None:
    arena.allocate(MIB, "weights")
    before = arena.stats
    with pytest.raises(UsageError) as told:
        call(arena, tags)
    assert "weights" in told.value.hint
    assert arena.stats == before


def test_one_name_is_one_tag(arena: Arena) -> None:
    arena.allocate(MIB, "mine")
    arena.sleep(1, "mine")
    arena.sleep(1, ["kv_cache"])  # a known tag that has nothing yet
    assert arena.stats.tags["mine"].asleep
    arena.wake("mine")
    assert not arena.stats.tags["mine"].asleep


def test_tags_nest_and_belong_to_the_thread(arena: Arena) -> None:
    tag = module._ABI.vcc_arena_thread_tag
    with arena.tag("weights"):
        with pytest.raises(KeyError), arena.tag("kv_cache"):
            raise KeyError
        assert tag("weights") == "weights"
    assert tag("default") == "default"


def test_the_switch_is_in_the_environment(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCC_LIBCUDA", fake.path)
    monkeypatch.setenv("VCC_USE_CUDA_MEMORY_POOL", "0")
    with Arena() as plain:
        plain.allocate(100)
        assert fake.count("cuMemAlloc") == 1
        with pytest.raises(UsageError, match="VCC_USE_CUDA_MEMORY_POOL"):
            plain.sleep()


def test_a_closed_arena_gives_all_back_and_refuses(arena: Arena, fake: Fake) -> None:
    arena.allocate(MIB)
    arena.close()
    arena.close()
    assert fake.count("cuMemUnmap") == 1
    with pytest.raises(UsageError, match="no such arena"):
        arena.allocate(1)


def test_a_device_that_is_not_there(arena: Arena) -> None:
    with pytest.raises(DeviceError, match="cannot use CUDA device 5"):
        Arena(5)


def test_the_package_gives_it_without_torch(fake: Fake) -> None:
    code = (
        "import sys, vcc.engine.arena as a\n"
        "with a.Arena() as arena, arena.tag('weights'):\n"
        "    print(arena.allocate(10) % 512, 'torch' in sys.modules)\n"
    )
    environment = {**os.environ, **fake.environment(memory=64 * MIB)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "0 False\n"


def test_torchs_allocator_takes_from_the_bound_arena(fake: Fake) -> None:
    """The functions that torch gets, called as it does; frees outlive the arena."""
    code = """
import ctypes, os
from vcc.engine import native
from vcc.engine.arena import Arena, _ABI
library = ctypes.CDLL(str(native.library("vcc_abi")))
take, give = library.vcc_torch_malloc, library.vcc_torch_free
take.argtypes = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
take.restype = ctypes.c_void_p
give.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
assert take(100, 0, None) is None
arena = Arena()
_ABI.vcc_arena_bind_torch(arena.handle, 1)
with arena.tag("weights"):
    block = take(2 << 20, 0, None)
other = take(2 << 20, 0, None)
print({name: tag.live >> 20 for name, tag in arena.stats.tags.items()})
assert take(1 << 40, 0, None) is None and take(100, 1, None) is None
_ABI.vcc_arena_bind_torch(arena.handle, 0)
give(block, 2 << 20, 0, None)
print({name: tag.live >> 20 for name, tag in arena.stats.tags.items()})
arena.close()
count = ctypes.CDLL(os.environ["VCC_LIBCUDA"]).fake_count
print(count(b"cuDevicePrimaryCtxRelease"))
give(other, 2 << 20, 0, None)
print(count(b"cuDevicePrimaryCtxRelease"), count(b"cuMemMap") - count(b"cuMemUnmap"))
give(12345, 1, 0, None)
"""
    environment = {**os.environ, **fake.environment(memory=64 * MIB)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "{'default': 2, 'weights': 2}",
        "{'default': 2, 'weights': 0}",
        "0",
        "1 0",
    ]
