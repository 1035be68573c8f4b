"""How sleeping contents are moved and kept: rings of any shape, times, a host without memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena

from vcc.cache.errors import UsageError

MIB = 1 << 20
ALL = ""


def holds(arena: RawArena, address: int, size: int, byte: int) -> bool:
    """Whether every byte is as it was set."""
    return arena.read(address, size) == bytes([byte]) * size


@pytest.mark.parametrize(("threads", "slot"), [(1, 64 << 10), (5, 4160), (0, 0)])
def test_contents_come_back_through_a_ring_of_any_shape(
    arena: RawArena, threads: int, slot: int
) -> None:
    arena.ring(threads, slot)
    sizes = [1 + 7919 * n % 30011 for n in range(90)]
    small = [arena.filled(size, "mine", 1 + n) for n, size in enumerate(sizes)]
    large = arena.filled(5 * MIB + 17, "weights", 200)
    arena.sleep(1, ALL)
    arena.wake(ALL)
    for n, (address, size) in enumerate(zip(small, sizes, strict=True)):
        assert holds(arena, address, size, 1 + n)
    assert holds(arena, large, 5 * MIB + 17, 200)


def test_the_ring_stays_as_it_is_while_contents_sleep(arena: RawArena) -> None:
    kept = arena.filled(MIB, "mine", 9)
    arena.sleep(1, ALL)
    with pytest.raises(UsageError, match="cannot change the ring"):
        arena.ring(2, MIB)
    arena.wake(ALL)
    arena.ring(2, MIB)
    arena.sleep(1, ALL)
    arena.wake(ALL)
    assert holds(arena, kept, MIB, 9)


def test_sleep_and_wake_say_where_their_time_went(arena: RawArena) -> None:
    kept = 9 * MIB + 12345
    arena.filled(kept, "weights", 1)
    arena.sleep(1, ALL)
    arena.wake(ALL)
    times = json.loads(arena.times())
    for one in (times["sleep"], times["wake"]):
        assert kept <= one["bytes"] < kept + 4096
        assert one["memory"] > 0
        assert one["copy"] > 0
    assert times["ring"] > 0


SHORT = """
import os, resource, sys, time
from support.fake_cuda.fixtures import DEVICE, RawArena
from vcc.cache.errors import DeviceError

device = DEVICE.vcc_device_open(sys.argv[1], 0)
arena = RawArena(device)
arena.ring(2, 1 << 20)
first, small = arena.filled(300 << 20, "weights", 7), arena.filled(1 << 20, "io", 8)
threads = len(os.listdir("/proc/self/task"))
arena.sleep(1, "io")
arena.wake("")
# A thread gives what was kept back. While it begins, malloc maps 128 MiB for it and keeps 64: a
# limit that counts the others would let the 300 MiB in.
ended = time.monotonic() + 60
while len(os.listdir("/proc/self/task")) > threads:
    assert time.monotonic() < ended, "the thread goes on"
    time.sleep(0.001)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (150 << 20),) * 2)
try:
    arena.sleep(1, "")
except DeviceError as error:
    print(error.what, "|", error.why, "|", error.hint)
stats = arena.stats()
assert not stats["host"], stats
assert not any(tag["asleep"] for tag in stats["tags"].values()), stats
assert arena.read(first + (299 << 20), 4) == bytes([7]) * 4
assert arena.read(small, 4) == bytes([8]) * 4
"""


def test_a_shortage_of_host_memory_leaves_everything_awake(fake: Fake) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SHORT, fake.path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cannot keep the contents of device memory | there is no host")
    assert "sleep at level 2" in done.stdout
