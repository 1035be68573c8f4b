"""Products of fp8 values inside pieces as Triton kernels, in the manner of `wrapped.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops.native_scaled import BLOCK
from vcc.engine.ops.triton.scaled import scaled_linear as kernel
from vcc.engine.ops.triton.wrapped import rows_of

Through = Callable[[Any], Any]
"""What makes a kernel launchable: `wrap_triton`, or the identity for the interpreter."""

BY_ROW = {
    "LEAST": 16, "LEAST_COLUMNS": 64, "LEAST_STAGES": 8, "LEAST_LEFT": 0,
    "FEW": 64, "FEW_COLUMNS": 32, "FEW_STAGES": 8, "FEW_LEFT": 1,
    "TILE_ROWS": 64, "TILE_COLUMNS": 128, "STAGES": 4, "LEFT": 1, "BAND": 8, "num_warps": 4,
}  # fmt: skip
BY_BLOCK = {**BY_ROW, "FEW_STAGES": 6}
"""Tiles where scales are of whole rows and columns, and where each block has its own.

With scales of blocks the sums of a block lie beside those of all, and must fit into registers. The
best of the candidates that were timed on an H200, at the shapes of a Llama-3-8B.
"""

MANY_COLUMNS = 16384
"""Columns from which on a program of few rows has twice as many: there are programs enough."""

WIDE = {"FEW_COLUMNS": 64, "FEW_STAGES": 6}


def tiling_of(columns: int, moving: int) -> dict[str, int]:
    """The tiles of a product."""
    return {**(BY_BLOCK if moving == 2 else BY_ROW), **(WIDE if columns >= MANY_COLUMNS else {})}


MOST_RANGES = 3
"""Of columns with a scale each: queries, keys and values."""


def by_block(scales: Tensor) -> Tensor:
    """Scales [..., blocks] as [blocks, rows], where those of a block of all rows lie together.

    So cuBLASLt reads them too. What makes them writes them so, or is compiled into one kernel with
    the copy.
    """
    return scales.flatten(0, -2).t().contiguous()


def scaled_linear(
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    bias: Tensor | None,
    ranges: Sequence[int],
    dtype: torch.dtype,
    *,
    through: Through = torch.library.wrap_triton,
) -> Tensor:
    """As `torch.ops.vcc.scaled_linear`, for up to MOST_RANGES ranges.

    One scale of x may stand in x_scale [n] many times: a product of the GEMM store reads one a row.
    """
    x, columns, depth = x.contiguous(), *weight.shape
    x_scale = by_block(x_scale) if w_scale.dim() == 2 else x_scale.contiguous()
    rows = rows_of(x)
    out = x.new_empty((*x.shape[:-1], columns), dtype=dtype)
    moving = 2 if w_scale.dim() == 2 else 0 if x_scale.dim() < 2 else 1
    parts = len(ranges) if w_scale.shape[0] == len(ranges) and w_scale.dim() == 1 else 0
    starts = [0, *accumulate(ranges), *([columns] * MOST_RANGES)] if parts else [0, 0, 0]
    tiling = tiling_of(columns, moving)
    least, few, many = (-(-columns // tiling[f"{way}_COLUMNS"]) for way in ("LEAST", "FEW", "TILE"))
    tiles: Any = (rows + tiling["TILE_ROWS"] - 1) // tiling["TILE_ROWS"]
    programs: Any = torch.sym_max(max(least, few), many * tiles)
    through(kernel)[(programs,)](
        x,
        weight,
        x_scale,
        w_scale,
        w_scale if bias is None else bias,
        out,
        rows,
        COLUMNS=columns,
        DEPTH=depth,
        MOVING=moving,
        FIRST=starts[1],
        SECOND=starts[2],
        PARTS=parts,
        HAS_BIAS=bias is not None,
        BLOCK=BLOCK,
        **tiling,
    )
    return out
