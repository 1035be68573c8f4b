"""Devices that fp8 models can be built for. Torch-free."""

from __future__ import annotations

import re

from vcc.cache.errors import ConfigError, DeviceError, UsageError
from vcc.engine.config.modes import Platform
from vcc.engine.config.target import Target
from vcc.engine.models.quant.spec import QuantSpec

OLDEST = 89
"""The first architecture whose tensor cores multiply fp8."""


def check_target(
    what: str, target: Target, instead: str = "use the unquantised checkpoint"
) -> None:
    """Refuse a GPU that has no fp8.

    Args:
        what: is in fp8: `the weights of this model`.
        target: the device.
        instead: what one can do for this device.

    Raises:
        DeviceError: it is too old.
    """
    number = re.search(r"[0-9]+", target.arch)
    if target.platform is not Platform.CUDA or number is None or int(number[0]) >= OLDEST:
        return
    raise DeviceError(
        f"{target.arch} has no fp8",
        f"{what} are float8_e4m3fn, which devices have from sm_{OLDEST} on",
        f"build for sm_{OLDEST} or later, or {instead}",
    )


def check_compiled(quant: QuantSpec | None, *, recorded: bool) -> None:
    """Refuse to record the eager step of a quantised model.

    Raises:
        ConfigError: it is quantised, and its kernels would be recorded.
    """
    if quant is not None and recorded:
        raise ConfigError(
            "fp8 weights go with compiled code on a GPU",
            "a recording has all weights in the model's dtype",
            "use --compile vcc",
        )


def check_interpretable(quant: QuantSpec | None) -> None:
    """Refuse to check a quantised model by the interpreter.

    Raises:
        UsageError: it is quantised: drawn weights in fp32 stand for the model's there.
    """
    if quant is not None:
        raise UsageError(
            "--interpret does not take a model with fp8 weights",
            "it runs in fp32 with weights that it draws, and fp8 has scales",
            "check the unquantised model: the code around its products is the same",
        )
