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
    "FEW": 64, "FEW_COLUMNS": 64, "FEW_STAGES": 6,
    "TILE_ROWS": 128, "TILE_COLUMNS": 128, "STAGES": 3, "BAND": 8, "num_warps": 8,
}  # fmt: skip
BY_BLOCK = {**BY_ROW, "TILE_ROWS": 64}
"""Tiles where scales are of whole rows and columns, and where each block has its own.

The sums of a block and of all blocks fit into registers. What is best is measured by
tests/benchmarks/gpu/bench_scaled_mm.py.
"""

MOST_RANGES = 3
"""Of columns with a scale each: queries, keys and values."""


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
    """As `torch.ops.vcc.scaled_linear`, for up to MOST_RANGES ranges."""
    x, x_scale = x.contiguous(), x_scale.contiguous()
    columns, depth = weight.shape
    rows = rows_of(x)
    out = x.new_empty((*x.shape[:-1], columns), dtype=dtype)
    moving = 2 if w_scale.dim() == 2 else 0 if x_scale.numel() == 1 and x_scale.dim() < 2 else 1
    parts = len(ranges) if w_scale.shape[0] == len(ranges) and w_scale.dim() == 1 else 0
    starts = [0, *accumulate(ranges), *([columns] * MOST_RANGES)] if parts else [0, 0, 0]
    cut = BY_BLOCK if moving == 2 else BY_ROW
    few, many = -(-columns // cut["FEW_COLUMNS"]), -(-columns // cut["TILE_COLUMNS"])
    tiles: Any = (rows + cut["TILE_ROWS"] - 1) // cut["TILE_ROWS"]
    programs: Any = torch.sym_max(few, many * tiles)
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
        **cut,
    )
    return out
