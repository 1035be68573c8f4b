"""Low-rank adapters in plain torch: what each row's adapter adds to a projection.

T is the number of rows, S of slots, P of a projection's parts (query, key and value are three), r
the largest rank of an adapter, I the width of a row, O of the result. A row whose slot is not one
of the S has no adapter. No shape depends on data, so a graph can hold every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def lora_shrink(x: Tensor, a: Tensor, slots: Tensor) -> Tensor:
    """Each row times the first matrix of its adapter.

    Args:
        x: [T, I].
        a: [S, P * r, I].
        slots: int32 [T].

    Returns:
        fp32 [T, P * r]; zero where a row has no adapter.
    """
    low = torch.zeros((x.shape[0], a.shape[1]), dtype=torch.float32, device=x.device)
    for slot, matrix in enumerate(a.float()):
        low = torch.where((slots == slot)[:, None], x.float() @ matrix.t(), low)
    return low


def lora_expand(y: Tensor, low: Tensor, b: Tensor, slots: Tensor, widths: Sequence[int]) -> Tensor:
    """Each row plus what its adapter adds: its part of `low` times the second matrix.

    Args:
        y: [T, O].
        low: fp32 [T, P * r].
        b: [S, O, r], each times the scale of its adapter.
        slots: int32 [T].
        widths: columns of each of the P parts, O in all.

    Returns:
        [T, O] in the dtype of y, rounded once; y itself where a row has no adapter.
    """
    rank, out = b.shape[2], y.float()
    for slot, matrix in enumerate(b.float()):
        parts = [
            own @ rows.t()
            for own, rows in zip(low.split(rank, dim=1), matrix.split(list(widths)), strict=True)
        ]
        out = torch.where((slots == slot)[:, None], y.float() + torch.cat(parts, dim=1), out)
    return out.to(y.dtype).contiguous()
