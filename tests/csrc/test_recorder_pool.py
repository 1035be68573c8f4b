"""Pools of the recorder on the libcuda double: odd bases, memory as it is used."""

from __future__ import annotations

import pytest
from support.fake_cuda.fixtures import DEVICE

from vcc.cache.errors import DeviceError
from vcc.engine import native
from vcc.engine.graphs.recorder import calls
from vcc.engine.graphs.recorder.addresses import PAGE, SECOND, Addresses

POOL = native.functions({"vcc_pool_take": "u32 u64 -> u64"})


def test_pools_give_memory_from_their_odd_bases_on(device: int) -> None:
    DEVICE.vcc_device_synchronize(device)  # its context is this thread's from here on
    wanted = 0x3A00_0000_0000
    size = 256 << 20
    assert calls.reserve(wanted, size) == wanted
    assert calls.reserve(wanted, size) != wanted, "what lies there already is seen"
    where = Addresses.at(wanted, SECOND, (4 * PAGE,) * 4)
    for index, base in enumerate(where.bases):
        calls.open_pool(index, 0, base, where.sizes[index])
    for index, base in enumerate(where.bases):
        first, second = (POOL.vcc_pool_take(index, 3000) for _ in range(2))
        assert (first, second) == (base, base + PAGE)
        DEVICE.vcc_device_fill(device, first, 1, 2 * PAGE)  # all of it is memory
        assert calls.pool_used(index) == 2 * PAGE
    DEVICE.vcc_device_synchronize(device)
    with pytest.raises(DeviceError, match="a pool of the recorder is full"):
        POOL.vcc_pool_take(0, 3 * PAGE)
