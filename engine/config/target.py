"""Target: the machine that code is made for, with parse and str inverse to each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from vcc.cache.errors import ConfigError

from .checks import suggestion
from .modes import Platform
from .spellings import LONGEST_NUMBER

CPU_LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")
"""Instruction set levels a CPU piece can be pinned to."""

DEFAULT_CPU_LEVEL = "x86-64-v3"

_SM = re.compile(r"sm_([1-9][0-9]{1,2})[af]?")
GPU_TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""Architectures with a device profile of ours; others need `--target-profile`."""

NO_TARGET: Mapping[str, tuple[str, str]] = {
    "hip": ("AMD GPUs", "hip"),
    "rocm": ("AMD GPUs", "hip"),
    "gfx": ("AMD GPUs", "hip"),
    "xpu": ("Intel GPUs", "xpu"),
}
"""How targets of other makers begin: whose they are, and the back end of custom ops for them."""

MOST_SMS = 4096

OLDEST_DRIVER = 12040
"""The first CUDA version whose driver has every function that the player calls (csrc/driver)."""

_EXAMPLES = (
    f"write cpu, cpu:x86-64-v3 or one of {', '.join(GPU_TARGETS)}; "
    "sm_90:114 is a device of 114 streaming multiprocessors"
)


@dataclass(frozen=True, slots=True)
class Target:
    """What code is made for.

    Args:
        platform: CPU or CUDA.
        arch: a CPU level of `CPU_LEVELS`, or a CUDA architecture such as `sm_90a`.
        sm_count: streaming multiprocessors of the device; 0 when code does not depend on it.

    Raises:
        ConfigError: unknown architecture.
    """

    platform: Platform
    arch: str
    sm_count: int = 0

    def __post_init__(self) -> None:
        if self.platform is Platform.CPU and self.arch not in CPU_LEVELS:
            raise ConfigError(
                f'unknown CPU level "{self.arch}"', "", suggestion(self.arch, CPU_LEVELS)
            )
        if self.platform is Platform.CUDA and not _SM.fullmatch(self.arch):
            raise ConfigError(f'unknown CUDA architecture "{self.arch}"', "", _EXAMPLES)
        if self.sm_count < 0 or (self.sm_count and self.platform is Platform.CPU):
            raise ConfigError(f"{self.platform.value} target cannot have {self.sm_count} SMs")
        if self.sm_count > MOST_SMS:
            raise ConfigError(f"no GPU has {self.sm_count:.3g} SMs", "", _EXAMPLES)

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `cpu`, `cpu:LEVEL`, `sm_90a`, `cuda:sm_90a`, each GPU form with `:SM_COUNT`.

        Raises:
            ConfigError: none of these forms.
        """
        parts = text.strip().split(":")
        if parts[0] == "cpu" and len(parts) <= 2:
            return cls(Platform.CPU, parts[1] if len(parts) == 2 else DEFAULT_CPU_LEVEL)
        if parts[0] == "cuda":
            parts = parts[1:]
        _check_maker(text, parts[0] if parts else "")
        if not parts or not parts[0].startswith("sm_") or len(parts) > 2:
            raise ConfigError(f'cannot read target "{text}"', "", _EXAMPLES)
        count = parts[1] if len(parts) == 2 else "0"
        if not (count.isascii() and count.isdigit()):
            raise ConfigError(f'cannot read target "{text}"', "SM count is no number", _EXAMPLES)
        if len(parts) == 2 and not count.strip("0"):
            raise ConfigError(f'cannot read target "{text}"', "a GPU has SMs", _EXAMPLES)
        if len(count) > LONGEST_NUMBER:
            raise ConfigError(f"no GPU has an SM count of {len(count)} digits", "", _EXAMPLES)
        return cls(Platform.CUDA, parts[0], int(count))

    def __str__(self) -> str:
        if self.platform is Platform.CPU:
            return f"cpu:{self.arch}"
        return f"{self.arch}:{self.sm_count}" if self.sm_count else self.arch


def _check_maker(text: str, word: str) -> None:
    """Refuse GPUs of other makers by name."""
    for start, (whose, backend) in NO_TARGET.items():
        if word.lower().startswith(start):
            raise ConfigError(
                f'no code is built for {whose}: target "{text.strip()}"',
                "there is neither a device profile nor a player for them; their kernels"
                f" ({backend}) are for custom ops in a program of yours, see docs/ops.md",
                _EXAMPLES,
            )
