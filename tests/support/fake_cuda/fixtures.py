"""Fixtures for tests on the libcuda double inside the test process: import them in a conftest.

A process keeps the first driver that it opened: tests on a real device run in another process.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vcc.engine import native

from . import Fake

DEVICE = native.functions(
    {
        "vcc_device_open": "str i32 -> ptr",
        "vcc_device_close": "ptr",
        "vcc_device_info": "ptr -> str",
        "vcc_device_synchronize": "ptr",
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
