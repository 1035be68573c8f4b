"""Experts with fp8 weights inside pieces as Triton kernels, in the manner of `wrapped_experts.py`.

Rows, and what the first products make of them, are quantised in plain torch between the launches:
the compiler of the piece makes a kernel of that, which sees rows whole.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops.native_scaled import BLOCK
from vcc.engine.ops.native_scaled_experts import rows_in_fp8
from vcc.engine.ops.triton import scaled_experts as kernels
from vcc.engine.ops.triton.wrapped_experts import Through, placed, summed

BY_ROW = {
    "BLOCK": BLOCK, "TILE_N": 64, "FEW_ROWS": 16, "FEW_STAGES": 4, "ROWS": 64, "STAGES": 3,
    "num_warps": 4,
}  # fmt: skip
BY_BLOCK = {**BY_ROW, "ROWS": 32}
"""Tiles where scales are of whole rows and columns, and where each block has its own.

First choices. A tile of few rows reads weights as fast, and computes less that nobody needs; with
scales of blocks the sums of a block lie beside those of all, and must fit into registers.
"""

ROWS_EACH = 8
"""Rows an expert, in the mean, up to which tiles have few rows."""


def scaled_experts(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    gate_up_scale: Tensor,
    down_scale: Tensor,
    x_scale: Tensor | None,
    inner_scale: Tensor | None,
    weights: Tensor,
    ids: Tensor,
    least: float,
    *,
    through: Through = torch.library.wrap_triton,
) -> Tensor:
    """As `torch.ops.vcc.scaled_experts`."""
    weights, ids = weights.contiguous(), ids.contiguous()
    count, hidden, width = down.shape
    tokens, top_k = ids.shape
    pairs: Any = tokens * top_k
    by_block, flat = gate_up_scale.dim() == 3, ids.flatten()
    tiling, most = BY_BLOCK if by_block else BY_ROW, ROWS_EACH * count
    at = placed(ids, pairs, count, most, (tiling["FEW_ROWS"], tiling["ROWS"]), through)
    form: Any = {"BY_BLOCK": by_block, "HIDDEN": hidden, "WIDTH": width, **tiling, "FEW": most}
    n = tiling["TILE_N"]
    # With scales of experts a row is another one for each of its experts.
    own = x if x_scale is None else x.repeat_interleave(top_k, 0)
    values, scale, moving = _quantised(own, x_scale, flat, by_block, least)
    inner = x.new_empty((pairs, width))
    through(kernels.scaled_expert_up)[(at.programs(width, n, n),)](
        values,
        gate_up,
        scale,
        gate_up_scale,
        at.slots,
        at.owners,
        inner,
        pairs,
        SHARE=top_k if x_scale is None else 1,
        MOVING=moving,
        BY_ROW=gate_up_scale.shape[1] == 2 * width,
        **form,
    )
    values, scale, moving = _quantised(inner, inner_scale, flat, by_block, least)
    parts = x.new_empty((pairs, hidden), dtype=torch.float32)
    through(kernels.scaled_expert_down)[(at.programs(hidden, n, n),)](
        values,
        down,
        scale,
        down_scale,
        weights,
        at.slots,
        at.owners,
        parts,
        pairs,
        MOVING=moving,
        BY_ROW=down_scale.shape[1] == hidden,
        **form,
    )
    return summed(x, parts, ids, through)


def _quantised(
    x: Tensor, scale: Tensor | None, ids: Tensor, by_block: bool, least: float
) -> tuple[Tensor, Tensor, int]:
    """Dense rows in fp8, their scales, and how those lie (`MOVING` of the kernels)."""
    if scale is None:
        values, made = rows_in_fp8(x, None, by_block, least)
        return values.contiguous(), made.contiguous(), 2 if by_block else 1
    flat = scale.flatten()
    values, _ = rows_in_fp8(x, flat.index_select(0, ids)[:, None], by_block, least)
    return values.contiguous(), flat, 0
