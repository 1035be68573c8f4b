"""The CUDA devices of this machine, as the driver tells them; needs the driver and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vcc.cache.errors import DeviceError
from vcc.engine.config.environment import read_environment
from vcc.engine.native import functions
from vcc.engine.torch_shim.profiles import DeviceProfile

MOST_DEVICES = 64

_CALLS = functions(
    {
        "vcc_device_open": "str i32 -> ptr",
        "vcc_device_info": "ptr -> str",
        "vcc_device_close": "ptr",
    }
)


@dataclass(frozen=True, slots=True)
class Device:
    """One device; `numbers` are the driver's figures, as `vcc_device_info` names them.

    Attributes:
        ordinal: its place among the visible devices.
        name, uuid: as the driver gives them.
        arch: `sm_90`.
        driver: CUDA version of the driver, 13000 for 13.0.
        memory, free_memory: bytes.
        mig: whether it is a slice of a device.
        visible: CUDA_VISIBLE_DEVICES; empty when it is not set.
    """

    ordinal: int
    name: str
    uuid: str
    arch: str
    driver: int
    memory: int
    free_memory: int
    mig: bool
    visible: str
    numbers: Mapping[str, int]

    @property
    def profile(self) -> DeviceProfile:
        """What code generation asks about a device of this kind."""
        return DeviceProfile(
            name=self.name,
            arch=int(self.arch.removeprefix("sm_")),
            total_memory=self.memory,
            **{field: self.numbers[name] for field, name in _PROFILE.items()},
        )


_PROFILE: Mapping[str, str] = {
    "sm_count": "multiprocessors",
    "l2_cache": "l2_bytes",
    "registers_per_sm": "registers_per_multiprocessor",
    "threads_per_sm": "threads_per_multiprocessor",
    "shared_per_sm": "shared_per_multiprocessor",
    "shared_per_block_optin": "shared_per_block_optin",
    "shared_per_block": "shared_per_block",
    "threads_per_block": "threads_per_block",
    "warp_size": "warp_size",
}
"""Field of a profile and the name of the driver's figure."""

_FIELDS = ("ordinal", "name", "uuid", "arch", "driver", "memory", "free_memory", "mig")


def device(ordinal: int) -> Device:
    """A device by its place among the visible ones.

    Raises:
        DeviceError: no driver, no such device, or it cannot be used.
    """
    handle = _CALLS.vcc_device_open(read_environment().libcuda, ordinal)
    try:
        found: dict[str, Any] = json.loads(_CALLS.vcc_device_info(handle))
    finally:
        _CALLS.vcc_device_close(handle)
    known = {name: found.pop(name) for name in _FIELDS}
    return Device(visible=found.pop("visible_devices"), numbers=found, **known)


def devices() -> tuple[Device, ...]:
    """All visible devices.

    Raises:
        DeviceError: no driver, no device, or the first one cannot be used.
    """
    found = [device(0)]
    while len(found) < MOST_DEVICES:
        try:
            found.append(device(len(found)))
        except DeviceError:
            break
    return tuple(found)
