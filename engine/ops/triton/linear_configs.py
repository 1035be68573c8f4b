"""Tiles of the matrix products, a table for each target: first choices, ordered by rows.

`tests/benchmarks/gpu/bench_kernels.py` measures candidates on a device. A tile of both operands
times the stages must fit the shared memory of a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vcc.engine.torch_shim.profiles import DeviceProfile


@dataclass(frozen=True, slots=True)
class Tile:
    """How products of up to `max_rows` rows (0: any) and at least `min_n` columns are cut.

    Args:
        max_rows: most rows.
        tile_rows, tile_n, tile_k: of one program.
        warps, stages: Triton's options.
        waves: programs a multiprocessor that k is split for; 0 never splits.
        narrow: whether the weights are the left operand.
        min_n: fewest columns.
    """

    max_rows: int
    tile_rows: int
    tile_n: int
    tile_k: int
    warps: int
    stages: int
    waves: int = 0
    narrow: bool = False
    min_n: int = 0


SMALL_SHARED = (
    Tile(16, 16, 64, 128, 4, 4, 1, True),
    Tile(32, 32, 64, 128, 4, 3, 1, True),
    Tile(64, 64, 64, 64, 4, 4, 1, True),
    Tile(128, 64, 128, 64, 4, 3, 1),
    Tile(0, 128, 128, 32, 8, 4),
)
"""sm_86, sm_89, sm_120: 99 KiB of shared memory a block."""

LARGE_SHARED = (
    Tile(16, 16, 64, 128, 4, 5, 1, True),
    Tile(32, 32, 64, 128, 4, 4, 1, True),
    Tile(64, 64, 64, 128, 4, 4, 1, True),
    Tile(128, 128, 64, 64, 4, 4, 1),
    Tile(0, 128, 128, 64, 8, 4),
)
"""sm_80: 163 KiB."""

GROUPS = (
    Tile(16, 16, 64, 128, 4, 5, 1, True),
    Tile(32, 32, 64, 128, 4, 4, 1, True),
    Tile(64, 64, 128, 64, 4, 5, 0, True, min_n=65536),
    Tile(64, 64, 128, 64, 4, 5, min_n=16384),
    Tile(64, 64, 64, 128, 4, 5, 1, True),
    Tile(128, 128, 256, 64, 8, 4, min_n=16384),
    Tile(128, 128, 128, 64, 4, 4, 1),
    Tile(256, 128, 128, 64, 8, 4, 1),
    Tile(512, 128, 128, 64, 8, 4, 1),
    Tile(0, 128, 256, 64, 8, 4),
)
"""sm_90, sm_100: 227 KiB, and products of a group of four warps on 64 x n tiles.

The best on an H200 of about ten candidates a size, at the shapes of a Llama-3-8B.
"""

TILES: Mapping[int, tuple[Tile, ...]] = {
    80: LARGE_SHARED,
    86: SMALL_SHARED,
    89: SMALL_SHARED,
    90: GROUPS,
    100: GROUPS,
    120: SMALL_SHARED,
}
"""Architecture -> tiles of 16-bit operands."""

WIDE = (Tile(16, 16, 32, 64, 4, 3, 3, True), Tile(0, 64, 64, 32, 4, 3))
"""fp32 operands: products run on the ordinary cores, in full precision."""

ODD = Tile(0, 32, 64, 32, 4, 2)
"""For sizes that are no multiples of 16: narrow loads, one kernel for every number of rows."""


def tiles_for(profile: DeviceProfile, dtype: str, n: int) -> tuple[Tile, ...]:
    """The tiles of a device for n columns, by rows; an unknown device takes the most modest."""
    every = WIDE if dtype == "float32" else TILES.get(profile.arch, SMALL_SHARED)
    found: dict[int, Tile] = {}
    for tile in every:
        if n >= tile.min_n:
            found.setdefault(tile.max_rows, tile)
    return tuple(found.values())


def splits_for(tile: Tile, n: int, k: int, profile: DeviceProfile) -> int:
    """Parts of k, a power of two: enough programs for the device, four tiles of k in each."""
    blocks = -(-n // tile.tile_n) * -(-(tile.max_rows or 1) // tile.tile_rows)
    wanted = tile.waves * profile.sm_count
    parts = 1
    while blocks * parts * 2 <= wanted and parts < 16 and k >= 8 * tile.tile_k * parts:
        parts *= 2
    return parts
