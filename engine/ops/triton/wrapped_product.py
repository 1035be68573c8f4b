"""Products that no gemm node holds as launches of our Triton kernel in a piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops.triton.product import product as kernel

Through = Callable[[Any], Any]
"""What makes a kernel launchable: `wrap_triton`, or the identity for the interpreter."""

TILE_M, TILE_N, TILE_K = 64, 64, 32


def batched(
    a: Tensor,
    b: Tensor,
    *,
    dtype: torch.dtype | None = None,
    through: Through = torch.library.wrap_triton,
) -> Tensor:
    """As `torch.bmm`: [N, m, k] by [N, k, n], fp32 accumulation.

    Args:
        a, b: of one type.
        dtype: of the result; theirs where there is none.
        through: see `Through`.
    """
    a, b = a.contiguous(), b.contiguous()
    count, rows, depth = a.shape
    columns = b.shape[2]
    out = a.new_empty((count, rows, columns), dtype=dtype or a.dtype)
    grid = (_tiles(rows, TILE_M), _tiles(columns, TILE_N), count)
    tiles = {"TILE_M": TILE_M, "TILE_N": TILE_N, "TILE_K": TILE_K}
    through(kernel)[grid](a, b, out, rows, columns, depth, **tiles)
    return out


def single(
    a: Tensor,
    b: Tensor,
    *,
    dtype: torch.dtype | None = None,
    through: Through = torch.library.wrap_triton,
) -> Tensor:
    """As `torch.mm`, for a right side that is no weight [n, k] of known sizes.

    Arguments are those of `batched`.
    """
    return batched(a[None], b[None], dtype=dtype, through=through)[0]


def _tiles(size: Any, tile: int) -> Any:
    return (size + tile - 1) // tile
