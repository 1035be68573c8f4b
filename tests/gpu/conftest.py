"""Tests on a CUDA device: they are skipped, and counted, where there is none.

`make gpu-test` gives each file a process of its own (run_files.py): what one leaves on the device
is gone when the next begins.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache

import pytest


@pytest.fixture(autouse=True, scope="package")
def no_recording_beside() -> Iterator[None]:
    """Runs leave no process behind that records: it would use the device that is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VCC_RECORD_PRODUCTS", "0")
        yield


@cache
def missing_device() -> str:
    """Why nothing can run on a GPU here; empty where it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver (libcuda.so.1) on this machine"
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "a CUDA driver but no device"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where there is no device; the driver is not asked otherwise."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    why = missing_device() if marked else ""
    for item in marked if why else ():
        item.add_marker(pytest.mark.skip(reason=why))
