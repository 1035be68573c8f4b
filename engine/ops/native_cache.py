"""What the paged cache holds of keys and values, in plain torch: they themselves, or fp8 of them.

In float8_e4m3fn a value lies there over a scale: `value / scale` in fp32, clamped to ±448, rounded
as torch's conversion does; NaN stays NaN. What is read is multiplied with the scale again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vcc.engine.ops.native_quant import FP8, quantised


def check_scale(kv_cache: Tensor, kv_scale: Tensor | None) -> None:
    """Refuse scales that do not go with a cache.

    Args:
        kv_cache: [2, blocks, block_size, KV, D].
        kv_scale: fp32 [2], of keys and of values; None stands for 1.

    Raises:
        ValueError: scales of another shape or dtype, or for a cache that is not float8_e4m3fn.
    """
    if kv_scale is None:
        return
    if kv_cache.dtype != FP8:
        raise ValueError(f"kv_scale goes with a float8_e4m3fn cache, kv_cache is {kv_cache.dtype}")
    if kv_scale.dtype != torch.float32 or tuple(kv_scale.shape) != (2,):
        raise ValueError(f"kv_scale is {kv_scale.dtype} {list(kv_scale.shape)}, not fp32 [2]")


def put(
    kv_cache: Tensor, part: int, slots: Tensor, values: Tensor, kv_scale: Tensor | None
) -> None:
    """Store `values [n, KV, D]` at `slots [n]` of the keys (part 0) or the values (part 1)."""
    size, home = kv_cache.shape[2], kv_cache[part]
    if kv_cache.dtype == FP8:
        scale = values.new_ones((), dtype=torch.float32) if kv_scale is None else kv_scale[part]
        values = quantised(values, scale).view(torch.uint8)
        home = home.view(torch.uint8)  # torch writes no fp8 by index
    home.index_put_((slots // size, slots % size), values.to(home.dtype))


def taken(
    kv_cache: Tensor, blocks: Tensor, length: int, kv_scale: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Keys and values `[length, KV, D]` in fp32 of a sequence whose blocks are `blocks`."""
    used = blocks[: -(-length // kv_cache.shape[2])].long()
    if kv_cache.dtype == FP8:
        rows = kv_cache.view(torch.uint8)[:, used].view(FP8)
    else:
        rows = kv_cache[:, used]
    keys, values = rows.flatten(1, 2)[:, :length].float()
    return (keys, values) if kv_scale is None else (keys * kv_scale[0], values * kv_scale[1])
