"""Products of fp8 values in plain torch: both sides become fp32, the sum is rounded once.

T is the number of rows, K the summed dimension, N of results.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK = 128
"""Values of a row, and rows and columns of a weight, that share a scale of a block."""


def scaled_linear(
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    bias: Tensor | None,
    ranges: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """`linear(x * x_scale, weight * w_scale, bias)`.

    Args:
        x: float8_e4m3fn [..., K].
        weight: float8_e4m3fn [N, K].
        x_scale: fp32: one number; one a row [..., 1]; or one a block [..., ceil(K / 128)].
        w_scale: fp32: one a row of the weight [N]; one a range of rows [len(ranges)]; or one a
            block [ceil(N / 128), ceil(K / 128)], which goes with blocks of x.
        bias: [N], or None.
        ranges: rows of each range, in order; they count where there are as many scales. A compiled
            piece cannot hand over an empty list.
        dtype: of the result.

    Returns:
        [..., N] in the given dtype.
    """
    if w_scale.dim() == 2:
        left = x.float() * _spread(x_scale, x.shape[-1], -1)
        rows = _spread(w_scale, weight.shape[0], 0)
        right = weight.float() * _spread(rows, weight.shape[1], 1)
    else:
        left = x.float() * x_scale
        apart = ranges and w_scale.shape[0] == len(ranges)
        each = torch.tensor(ranges, dtype=torch.int64) if apart else None
        factor = w_scale if each is None else w_scale.repeat_interleave(each.to(w_scale.device))
        right = weight.float() * factor[:, None]
    wide = None if bias is None else bias.float()
    return torch.nn.functional.linear(left, right, wide).to(dtype)


def _spread(scales: Tensor, size: int, dim: int) -> Tensor:
    """Each scale of a dimension BLOCK times, the last one as often as is left."""
    return scales.repeat_interleave(BLOCK, dim).narrow(dim, 0, size)
