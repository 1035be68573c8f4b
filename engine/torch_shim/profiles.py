"""What code generation asks about a GPU: a table of devices to build for, none of which is here.

Figures of a compute capability (shared memory, registers, threads) are those of the CUDA
programming guide, "Compute Capabilities", tables "Technical Specifications"; figures of a device
are NVIDIA's data sheets and architecture papers, or what the driver said (H200 here; B200 in
pytorch/ao pull request 4002). Free of torch and Triton.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from vcc.cache.digest import Digest
from vcc.cache.errors import ConfigError
from vcc.cache.named_files import read_named
from vcc.engine.config.target import Target


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One GPU as code generation sees it; memory in bytes, counts of one multiprocessor or block.

    Attributes:
        name: as the driver gives it.
        arch: compute capability, 90 for 9.0.
        sm_count: streaming multiprocessors.
        total_memory: device memory.
        l2_cache: L2 cache.
        registers_per_sm: 32-bit registers.
        threads_per_sm: resident threads.
        shared_per_sm: shared memory.
        shared_per_block_optin: most that a kernel may ask for.
        shared_per_block: what it has without asking.
        threads_per_block: most threads of a block.
        warp_size: threads of a warp.
    """

    name: str
    arch: int
    sm_count: int
    total_memory: int
    l2_cache: int
    registers_per_sm: int
    threads_per_sm: int
    shared_per_sm: int
    shared_per_block_optin: int
    shared_per_block: int = 48 << 10
    threads_per_block: int = 1024
    warp_size: int = 32

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor compute capability."""
        return divmod(self.arch, 10)

    @property
    def target(self) -> str:
        """The architecture's name, `sm_90`."""
        return f"sm_{self.arch}"

    @property
    def digest(self) -> str:
        """SHA-256 of all figures, in hex: part of the code key."""
        return Digest.of(to_json(self).encode()).hex


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LARGE = {"registers_per_sm": 65536, "threads_per_sm": 2048}
SMALL = {"registers_per_sm": 65536, "threads_per_sm": 1536}

# fmt: off
PROFILES: Mapping[str, DeviceProfile] = {profile.target: profile for profile in (
    DeviceProfile("NVIDIA A100-SXM4-80GB", 80, 108, 80 * GIB, 40 * MIB,
                  shared_per_sm=164 * KIB, shared_per_block_optin=163 * KIB, **LARGE),
    DeviceProfile("NVIDIA A10", 86, 72, 24 * GIB, 6 * MIB,
                  shared_per_sm=100 * KIB, shared_per_block_optin=99 * KIB, **SMALL),
    DeviceProfile("NVIDIA L40S", 89, 142, 48 * GIB, 96 * MIB,
                  shared_per_sm=100 * KIB, shared_per_block_optin=99 * KIB, **SMALL),
    DeviceProfile("NVIDIA H200", 90, 132, 141 * 10**9, 60 * MIB,
                  shared_per_sm=228 * KIB, shared_per_block_optin=227 * KIB, **LARGE),
    DeviceProfile("NVIDIA B200", 100, 148, 180 * 10**9, 126 * MIB + 512 * KIB,
                  shared_per_sm=228 * KIB, shared_per_block_optin=227 * KIB, **LARGE),
    DeviceProfile("NVIDIA RTX PRO 6000 Blackwell", 120, 188, 96 * 10**9, 128 * MIB,
                  shared_per_sm=100 * KIB, shared_per_block_optin=99 * KIB, **SMALL),
)}
# fmt: on
"""One device for each architecture that code is made for, by the architecture's name."""


def profile_for(target: Target, given: DeviceProfile | None = None) -> DeviceProfile:
    """The device that a target stands for: the one given, else the table's.

    Args:
        target: `sm_90`, or `sm_90:114` for a device with fewer multiprocessors.
        given: a profile of the user's own.

    Raises:
        ConfigError: no profile for this architecture, or the one given is of another.
    """
    arch = target.arch.rstrip("af")
    found = given or PROFILES.get(arch)
    if found is None:
        raise ConfigError(
            f'cannot compile for target "{target}"',
            f"no device profile for it; known: {', '.join(PROFILES)}",
            "write one on that device with `vcc doctor --profile FILE`, then --target-profile FILE",
        )
    if found.target != arch:
        raise ConfigError(
            f'profile "{found.name}" is of {found.target}, the target is {target}',
            hint=f"use --target {found.target}",
        )
    return replace(found, sm_count=target.sm_count) if target.sm_count else found


def to_json(profile: DeviceProfile) -> str:
    """The profile as JSON text, the same on every machine."""
    return json.dumps(asdict(profile), indent=1, sort_keys=True) + "\n"


MOST: Mapping[str, int] = {
    "arch": 999,
    "sm_count": 4096,
    "total_memory": 1 << 50,
    "threads_per_block": 1024,
    "warp_size": 32,
}
"""Largest figures of a profile; 2 GiB for what is not listed. Code generation computes in int32."""

LEAST: Mapping[str, int] = {"arch": 70, "warp_size": 32, "threads_per_block": 32}
MOST_TEXT, MOST_NAME = 1 << 16, 200


def from_json(text: str) -> DeviceProfile:
    """Read what `to_json` wrote.

    Raises:
        ConfigError: not JSON, or a field that is missing, unknown, of another kind or out of range.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(str(error)) from None
    if not isinstance(found, dict):
        raise _unreadable("it is no JSON object")
    kinds = {item.name: str if item.name == "name" else int for item in fields(DeviceProfile)}
    for name in sorted(found.keys() ^ kinds.keys()):
        raise _unreadable(f"field {name!r} is {'unknown' if name in found else 'missing'}")
    for name, kind in kinds.items():
        if type(found[name]) is not kind or not _fits(name, found[name]):
            raise _unreadable(f"field {name!r} is {_shown(found[name])}")
    return DeviceProfile(**found)


def _fits(name: str, value: str | int) -> bool:
    if isinstance(value, str):
        return value.isprintable() and len(value) <= MOST_NAME
    return LEAST.get(name, 1) <= value <= MOST.get(name, (1 << 31) - 1)


def _shown(value: object) -> str:
    huge = isinstance(value, int) and value.bit_length() > 128
    return "a huge number" if huge else f"{value!r:.40}"


def read_profile(path: Path) -> DeviceProfile:
    """The profile in a file.

    Raises:
        ConfigError: the file cannot be read, is larger than 64 KiB, or `from_json` refuses it.
    """
    try:
        text = read_named(path, MOST_TEXT)
        if len(text) > MOST_TEXT:
            raise _unreadable(f"{path} is larger than {MOST_TEXT >> 10} KiB")
        return from_json(text.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(str(error)) from None


def _unreadable(why: str) -> ConfigError:
    return ConfigError(
        "cannot read the device profile", why, "`vcc doctor --profile FILE` writes one on a device"
    )
