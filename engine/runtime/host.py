"""Host rules: whether an artifact can be loaded on this machine, checked without torch."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcc.engine.runtime.player.device import Device

LEVELS: Mapping[str, frozenset[str]] = {
    "x86-64-v2": frozenset({"ssse3", "sse4_1", "sse4_2", "popcnt", "cx16"}),
    "x86-64-v3": frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
"""CPU flags, as Linux names them, that each level adds to the one before."""


TABLES = "tables"
"""The rule on the version of node tables."""

PLAYER = "Player"
"""The loader of node tables."""


@dataclass(frozen=True, slots=True)
class NotHere:
    """A host rule that does not hold.

    Attributes:
        rule: its name.
        wanted: what the artifact needs.
        why: the reason, for people.
        found: what this machine has instead, where a next step depends on it: its GPU's
            architecture, the CUDA version of its driver.
    """

    rule: str
    wanted: str
    why: str
    found: str = ""


def refusal(rules: Mapping[str, str]) -> NotHere | None:
    """The first rule of an artifact that does not hold here; None when it can be loaded.

    A rule that this version does not know forbids loading. An artifact for a GPU that does not say
    the version of its node tables has the first.
    """
    unsaid = {TABLES: "1"} if rules.get("loader") == PLAYER else {}
    for name, wanted in {**unsaid, **rules}.items():
        check = CHECKS.get(name)
        if check is None:
            return NotHere(name, wanted, f"unknown host rule {name}")
        if why := check(wanted):
            return NotHere(name, wanted, why, FOUND.get(name, str)())
    return None


def why_not(rules: Mapping[str, str]) -> str:
    """Why an artifact with these rules cannot be loaded here; empty when it can."""
    refused = refusal(rules)
    return "" if refused is None else refused.why


def best_cpu_level() -> str:
    """The highest x86-64 level that this CPU has; the lowest of the table where it has none."""
    here = [level for level in LEVELS if _needed(level) <= cpu_flags()]
    return here[-1] if here else next(iter(LEVELS))


def _machine(wanted: str) -> str:
    here = platform.machine()
    return "" if here == wanted else f"it is for {wanted}, this machine is {here}"


def _cpu_level(wanted: str) -> str:
    flags = cpu_flags()
    if not flags:
        return f"it needs {wanted}; what this CPU has cannot be read from /proc/cpuinfo"
    missing = _needed(wanted) - flags
    if missing:
        return f"it needs {wanted}; this CPU lacks {', '.join(sorted(missing))}"
    return ""


def _needed(level: str) -> frozenset[str]:
    names = list(LEVELS)
    if level not in LEVELS:
        return frozenset({level})
    return frozenset().union(*(LEVELS[name] for name in names[: names.index(level) + 1]))


@cache
def cpu_flags() -> frozenset[str]:
    """The flags of the first processor in /proc/cpuinfo; empty where there is none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            lines = (line for line in stream if line.startswith("flags"))
            return frozenset(next(lines, "").partition(":")[2].split())
    except OSError:
        return frozenset()


def _torch(wanted: str) -> str:
    from importlib import metadata  # takes 10 ms: not on the way to the player

    try:
        here = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return f"it needs torch {wanted}, which is not installed"
    short = ".".join(here.split(".")[:2])
    return "" if short == wanted else f"it was built for torch {wanted}, here is {here}"


def _device() -> Device | None:
    from vcc.engine.runtime.player.device import device_or_none

    return device_or_none()


def _arch(wanted: str) -> str:
    """Without a device nothing is said here: the boot tells what is wrong with it."""
    device = _device()
    if device is None or device.arch == wanted:
        return ""
    return f"it is for {wanted}, {device.name} is {device.arch}"


def _driver(wanted: str) -> str:
    device = _device()
    if device is None or not wanted.isdigit() or device.driver >= int(wanted):
        return ""
    needed, here = version_text(int(wanted)), version_text(device.driver)
    return f"it needs a driver of CUDA {needed}, this one has {here}"


def _tables(wanted: str) -> str:
    from vcc.engine.graphs.table.layout import VERSION

    if wanted == str(VERSION):
        return ""
    return f"its node tables are of version {wanted}, this vcc plays version {VERSION}"


def version_text(number: int) -> str:
    """`13.0` for 13000, as the driver counts."""
    return f"{number // 1000}.{number % 1000 // 10}"


CHECKS: Mapping[str, Callable[[str], str]] = {
    "loader": lambda wanted: "",
    "machine": _machine,
    "cpu_level": _cpu_level,
    "torch": _torch,
    "arch": _arch,
    "driver": _driver,
    TABLES: _tables,
}

FOUND: Mapping[str, Callable[[], str]] = {
    "cpu_level": lambda: best_cpu_level() if cpu_flags() else "",
    "arch": lambda: getattr(_device(), "arch", ""),
    "driver": lambda: version_text(getattr(_device(), "driver", 0)),
}
