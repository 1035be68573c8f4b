"""Rows to fp8 in plain torch: over a given scale, or over one made of the values.

The quotient and the clamp are fp32, and rounding is torch's conversion to float8_e4m3fn. NaN stays
NaN, in scales too.
"""

from __future__ import annotations

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0
"""Largest finite value of float8_e4m3fn."""


def quantised(x: Tensor, scale: Tensor) -> Tensor:
    """`x / scale` as float8_e4m3fn; the scale is one number or broadcasts over the last dimension.

    Values beyond the largest become the largest, which torch's own conversion makes NaN.
    """
    return (x.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)


def quantised_dynamic(x: Tensor, block_size: int = 0, least: float = 0.0) -> tuple[Tensor, Tensor]:
    """Each row, or each block of a row, over its own scale `max(amax(|x|), least) / 448`.

    Args:
        x: [..., D].
        block_size: values that share a scale; 0 is the whole row, any other number divides D.
        least: lower bound of the largest magnitude; with 0 a row of zeros becomes NaN.

    Returns:
        float8_e4m3fn [..., D], and fp32 scales [..., D / block_size] or [..., 1].
    """
    blocks = x.float().unflatten(-1, (-1, block_size or x.shape[-1]))
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=least) / FP8_MAX
    return quantised(blocks, scale).flatten(-2), scale.squeeze(-1)
