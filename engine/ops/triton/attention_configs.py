"""Tile sizes of the attention kernels, by shared memory of the device and bytes of a head.

First choices, not measured on every device: a tile of keys and values and its copies in flight
(stages) must fit the shared memory of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

from vcc.engine.ops.triton.specs import BYTES
from vcc.engine.torch_shim.profiles import DeviceProfile


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """How keys are split in a decode step.

    Args:
        keys: keys of a tile.
        warps, stages: Triton's options.
        waves: programs a multiprocessor that a small batch is split into.
    """

    keys: int
    warps: int
    stages: int
    waves: int = 2

    def programs(self, profile: DeviceProfile) -> int:
        """Programs that fill the device."""
        return self.waves * profile.sm_count


@dataclass(frozen=True, slots=True)
class PrefillConfig:
    """A tile of query rows (heads of a group count as rows) and keys."""

    rows: int
    keys: int
    warps: int
    stages: int


def decode_config(
    dtype: str, dims: int, profile: DeviceProfile, *, fp8: bool = False
) -> DecodeConfig:
    """The configuration for heads of `dims` values (a power of two).

    Args:
        dtype: element type of the queries.
        dims: values of a head.
        profile: the device.
        fp8: whether the cache holds fp8, which is widened on its way to the product. In fp32 that
            takes registers: more warps then, and no pipeline.
    """
    if fp8 and dtype == "float32" and dims > 64:
        return DecodeConfig(32 if dims <= 128 else 16, 8, 1)
    if dtype == "float32":
        return DecodeConfig(32 if dims <= 128 else 16, 4, 2)
    keys = 64 if dims <= 128 else 32
    large = profile.shared_per_block_optin > 128 << 10
    return DecodeConfig(keys, 4, 5 if large else 3)


def prefill_config(
    dtype: str, dims: int, profile: DeviceProfile, *, fp8: bool = False
) -> PrefillConfig:
    """The configuration for heads of `dims` values; arguments as of `decode_config`."""
    if dtype == "float32":
        return PrefillConfig(32, 32 if dims <= 128 else 16, 4, 1)
    if fp8 and dims > 64 and profile.arch not in LARGE_TILES:
        return PrefillConfig(64, 32, 4 if dims <= 128 else 8, 3)
    if fp8 and dims > 128:
        return PrefillConfig(64, 64, 8, 3)
    if measured := MEASURED.get((profile.arch, dims)):
        return measured
    if profile.arch in LARGE_TILES:
        return LARGE if dims <= 128 else PrefillConfig(128, 64, 8, 3)
    if BYTES[dtype] * dims * 64 * 4 + (dims << 7) <= profile.shared_per_block_optin - (8 << 10):
        return PrefillConfig(64, 64, 4, 3)
    return PrefillConfig(64, 32, 4, 3)


MEASURED = {
    (90, 64): PrefillConfig(64, 64, 4, 2),
    (90, 128): PrefillConfig(64, 64, 4, 5),
    (90, 256): PrefillConfig(64, 64, 4, 5),
}
"""By architecture and dims, for 16-bit types: the fastest at 2,048 tokens on an H200."""

LARGE = PrefillConfig(128, 128, 8, 3)
LARGE_TILES = (90, 100)
"""Devices with group-wide products, which want 128 rows in two groups of four warps."""
