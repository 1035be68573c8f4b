"""Shapes and candidate tiles of bench_kernels."""

from __future__ import annotations

from collections.abc import Iterator

from support.paged import Heads
from vcc.engine.ops.triton.attention_configs import DecodeConfig, PrefillConfig
from vcc.engine.ops.triton.linear_configs import Tile

LINEAR_SHAPES = ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
"""(n, k) of a Llama-3-8B layer and its head."""

LINEAR_ROWS = (1, 16, 32, 64, 128, 512, 2048, 2, 4, 8)
"""The most telling first: the time may run out."""

PREFILL_SHAPES = (
    (Heads(32, 8, 128), 2048, 1),
    (Heads(32, 8, 128), 512, 4),
    (Heads(32, 8, 128), 8192, 1),
    (Heads(32, 8, 64), 2048, 1),
    (Heads(8, 4, 256), 2048, 1),
)
DECODE_SHAPES = (
    (Heads(32, 8, 128), 512, 1),
    (Heads(32, 8, 128), 4096, 1),
    (Heads(32, 8, 128), 2048, 16),
    (Heads(32, 8, 128), 1024, 128),
    (Heads(32, 8, 64), 4096, 1),
)
PREFILL_CANDIDATES = (
    PrefillConfig(128, 128, 8, 3),
    PrefillConfig(128, 128, 8, 2),
    PrefillConfig(128, 64, 8, 3),
    PrefillConfig(128, 64, 4, 3),
    PrefillConfig(128, 64, 4, 2),
    PrefillConfig(64, 64, 4, 3),
    PrefillConfig(64, 64, 4, 2),
    PrefillConfig(64, 64, 4, 5),
)
DECODE_CANDIDATES = (
    DecodeConfig(64, 4, 5, 2),
    DecodeConfig(64, 4, 3, 2),
    DecodeConfig(64, 4, 3, 4),
    DecodeConfig(32, 4, 5, 2),
    DecodeConfig(32, 4, 5, 4),
    DecodeConfig(128, 4, 3, 2),
    DecodeConfig(64, 8, 3, 2),
    DecodeConfig(64, 2, 3, 4),
)

FEW: tuple[tuple[int, int, int, int], ...] = (
    (64, 128, 4, 4),
    (64, 128, 4, 5),
    (128, 64, 4, 5),
    (128, 128, 4, 3),
)
"""(tile_n, tile_k, warps, stages) with the weights as the left operand."""

MANY: tuple[tuple[int, int, int, int, int], ...] = (
    (128, 256, 64, 8, 4),
    (128, 256, 64, 8, 3),
    (128, 128, 64, 8, 4),
    (128, 128, 64, 4, 4),
    (64, 128, 64, 4, 5),
)
"""(tile_rows, tile_n, tile_k, warps, stages)."""


def linear_candidates(rows: int, n: int, k: int) -> Iterator[tuple[Tile, int]]:
    """Tiles and splits of k that are worth a try for `rows` rows."""
    if rows <= 64:
        height = max(16, 1 << (rows - 1).bit_length())
        for tile_n, tile_k, warps, stages in FEW:
            if (tile_n + height) * tile_k * 2 * stages <= 220 << 10:
                for parts in _parts(-(-n // tile_n), k, tile_k):
                    yield Tile(rows, height, tile_n, tile_k, warps, stages, 0, True), parts
    if rows >= 64:
        for tile_rows, tile_n, tile_k, warps, stages in MANY:
            if (
                tile_rows <= max(64, rows)
                and (tile_rows + tile_n) * tile_k * 2 * stages <= 220 << 10
            ):
                blocks = -(-n // tile_n) * -(-rows // tile_rows)
                for parts in _parts(blocks, k, tile_k):
                    yield Tile(rows, tile_rows, tile_n, tile_k, warps, stages), parts


def _parts(blocks: int, k: int, tile_k: int) -> Iterator[int]:
    """The number of parts next to one, two and four programs a multiprocessor."""
    seen = set()
    for programs in (132, 264, 528):
        parts = 1
        while parts < 16 and blocks * parts * 2 <= programs * 1.2 and k >= 4 * tile_k * parts:
            parts *= 2
        if parts not in seen:
            seen.add(parts)
            yield parts
