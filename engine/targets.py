"""Which target a request means: the one that was said, else this machine's GPU, else the CPU."""

from __future__ import annotations

from vcc.engine.config.modes import CompileMode
from vcc.engine.config.target import Target
from vcc.engine.config.types import CompilationConfig


def choose_target(said: str | None, kind: str, compilation: CompilationConfig) -> Target:
    """The target of a request.

    Args:
        said: in the user's words; None leaves the choice.
        kind: of the source: GPUs run decoders.
        compilation: as the user said it: a mode without stored code runs on the CPU.

    Raises:
        ConfigError: the words cannot be read.
    """
    if said is not None:
        return Target.parse(said)
    if kind == "decoder" and compilation.mode in (None, CompileMode.VCC_COMPILE):
        from vcc.engine.runtime.player.device import device_or_none
        from vcc.engine.torch_shim.profiles import PROFILES

        device = device_or_none()
        if device is not None and device.arch in PROFILES:
            return Target.parse(device.arch)
    return Target.parse("cpu")
