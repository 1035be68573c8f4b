"""Low-rank adapters as Triton kernels in a piece: two launches a projection, sized by T alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vcc.cache.errors import CompileError
from vcc.engine.ops.triton import lora as kernels
from vcc.engine.ops.triton.sizes import power_of_two

Through = Callable[[Any], Any]
"""What makes a kernel launchable: `wrap_triton`, or the identity for the interpreter."""

ROWS, TILE_N, TILE_K = 16, 64, 64
"""Rows and columns of a program, and columns of x that it takes at a time."""

MOST_PARTS = 3
"""Of a projection: query, key and value."""


def lora_shrink(
    x: Tensor, a: Tensor, slots: Tensor, *, through: Through = torch.library.wrap_triton
) -> Tensor:
    """As `torch.ops.vcc.lora_shrink`."""
    x, tokens = x.contiguous(), x.shape[0]
    count, width, depth = a.shape
    low = x.new_empty((tokens, width), dtype=torch.float32)
    tile = min(TILE_N, max(16, power_of_two(width)))
    through(kernels.lora_shrink)[(-(-width // tile), _tiles(tokens))](
        x,
        a,
        slots,
        low,
        tokens,
        SLOTS=count,
        WIDTH=width,
        DEPTH=depth,
        ROWS=ROWS,
        TILE_N=tile,
        TILE_K=TILE_K,
    )
    return low


def lora_expand(
    y: Tensor,
    low: Tensor,
    b: Tensor,
    slots: Tensor,
    widths: Sequence[int],
    *,
    through: Through = torch.library.wrap_triton,
) -> Tensor:
    """As `torch.ops.vcc.lora_expand`, in place: dense `y` is what is returned.

    Raises:
        CompileError: more parts than the kernel knows.
    """
    if len(widths) > MOST_PARTS:
        raise CompileError(
            f"lora_expand of {len(widths)} parts has no Triton kernel", f"it knows {MOST_PARTS}"
        )
    y, tokens = y.contiguous(), y.shape[0]
    count, width, rank = b.shape
    first, second = widths[0], sum(widths[:2])
    through(kernels.lora_expand)[(-(-width // TILE_N), _tiles(tokens))](
        y,
        low,
        b,
        slots,
        tokens,
        SLOTS=count,
        WIDTH=width,
        FIRST=first,
        SECOND=second,
        PARTS=len(widths),
        RANK=rank,
        LANES=max(16, power_of_two(rank)),
        ROWS=ROWS,
        TILE_N=TILE_N,
    )
    return y


def _tiles(tokens: Any) -> Any:
    return (tokens + ROWS - 1) // ROWS
