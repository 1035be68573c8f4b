"""Device: the CUDA device of this process, opened once, without torch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from vcc.cache.errors import DeviceError, UsageError, VccError
from vcc.engine.config.environment import read_environment
from vcc.engine.native import functions

_C = functions(
    {
        "vcc_device_open": "str i32 -> ptr",
        "vcc_device_info": "ptr -> str",
        "vcc_device_synchronize": "ptr",
    }
)


@dataclass(frozen=True, slots=True)
class Device:
    """An open device; its primary context is retained until the process ends.

    Attributes:
        handle: of the C ABI.
        ordinal: its number among the visible devices.
        name: such as "NVIDIA H200".
        arch: such as "sm_90".
        driver: CUDA version of the driver, 13000 for 13.0.
        memory: bytes in all.
        seconds: that it took to open.
    """

    handle: int
    ordinal: int
    name: str
    arch: str
    driver: int
    memory: int
    seconds: float = 0.0

    def info(self) -> Mapping[str, Any]:
        """Everything the native library says of it; `free_memory` is of now.

        Raises:
            DeviceError: the device is lost, or this process was forked after it was opened.
        """
        found: Mapping[str, Any] = json.loads(_C.vcc_device_info(self.handle))
        return found

    @property
    def free_memory(self) -> int:
        """Bytes that no process holds now."""
        return int(self.info()["free_memory"])

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        _C.vcc_device_synchronize(self.handle)


def open_device(ordinal: int = 0) -> Device:
    """The device with this number.

    Raises:
        DeviceError: no driver, a driver that is too old, no such device.
    """
    with _OPENING:  # a second caller waits for the first and gets the same device
        return _opened(read_environment().libcuda, ordinal)


def warm_up() -> None:
    """Begin to open the first device beside what this thread does next: it takes a while.

    Nothing is told when there is none; whoever needs it asks and is.
    """

    def work() -> None:
        with suppress(VccError):
            open_device()

    threading.Thread(target=work, name="vcc-device", daemon=True).start()


def device_or_none() -> Device | None:
    """The first device, or None where there is none that answers.

    A process that uses another driver library already has none either.
    """
    try:
        return open_device()
    except (DeviceError, UsageError):
        return None


_OPENING = threading.Lock()


@cache
def _opened(path: str, ordinal: int) -> Device:
    start = time.perf_counter()
    handle = _C.vcc_device_open(path, ordinal)
    info = json.loads(_C.vcc_device_info(handle))
    return Device(
        handle=handle,
        ordinal=ordinal,
        name=info["name"],
        arch=info["arch"],
        driver=info["driver"],
        memory=info["memory"],
        seconds=time.perf_counter() - start,
    )
