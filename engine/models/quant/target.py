"""Devices that fp8 models can be built for. Torch-free."""

from __future__ import annotations

import re

from vcc.cache.errors import DeviceError
from vcc.engine.config.modes import Platform
from vcc.engine.config.target import Target

OLDEST = 89
"""The first architecture whose tensor cores multiply fp8."""


def check_target(what: str, target: Target) -> None:
    """Refuse a GPU that has no fp8.

    Args:
        what: is in fp8: `the weights of this model`.
        target: the device.

    Raises:
        DeviceError: it is too old.
    """
    number = re.search(r"[0-9]+", target.arch)
    if target.platform is not Platform.CUDA or number is None or int(number[0]) >= OLDEST:
        return
    raise DeviceError(
        f"{target.arch} has no fp8",
        f"{what} are float8_e4m3fn, which devices have from sm_{OLDEST} on",
        "build for sm_89 or later, or use the unquantised checkpoint",
    )
