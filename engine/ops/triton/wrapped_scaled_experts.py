"""Experts with fp8 weights inside pieces as Triton kernels, in the manner of `wrapped_experts.py`.

Rows, and what the first products make of them, are quantised in plain torch between the launches:
the compiler of the piece makes a kernel of that, which sees rows whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops.native_scaled import BLOCK
from vcc.engine.ops.native_scaled_experts import rows_in_fp8
from vcc.engine.ops.triton import experts
from vcc.engine.ops.triton import scaled_experts as kernels
from vcc.engine.ops.triton.sizes import power_of_two
from vcc.engine.ops.triton.wrapped_experts import CHUNK, COLUMNS

Through = Callable[[Any], Any]
"""What makes a kernel launchable: `wrap_triton`, or the identity for the interpreter."""

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
    cut = BY_BLOCK if by_block else BY_ROW
    slots, owners, tiles = _places(ids, pairs, count, cut, through)
    form: Any = {"BY_BLOCK": by_block, "HIDDEN": hidden, "WIDTH": width, **cut}
    form |= {"FEW": ROWS_EACH * count}
    # With scales of experts a row is another one for each of its experts.
    own = x if x_scale is None else x.repeat_interleave(top_k, 0)
    values, scale, moving = _quantised(own, x_scale, flat, by_block, least)
    inner = x.new_empty((pairs, width))
    through(kernels.scaled_expert_up)[(_programs(width, cut, tiles),)](
        values,
        gate_up,
        scale,
        gate_up_scale,
        slots,
        owners,
        inner,
        pairs,
        SHARE=top_k if x_scale is None else 1,
        MOVING=moving,
        BY_ROW=gate_up_scale.shape[1] == 2 * width,
        **form,
    )
    values, scale, moving = _quantised(inner, inner_scale, flat, by_block, least)
    parts = x.new_empty((pairs, hidden), dtype=torch.float32)
    through(kernels.scaled_expert_down)[(_programs(hidden, cut, tiles),)](
        values,
        down,
        scale,
        down_scale,
        weights,
        slots,
        owners,
        parts,
        pairs,
        MOVING=moving,
        BY_ROW=down_scale.shape[1] == hidden,
        **form,
    )
    out, lanes = x.new_empty(x.shape), min(COLUMNS, power_of_two(hidden))
    through(experts.expert_sum)[(tokens, -(-hidden // lanes))](
        parts, out, TOP_K=top_k, HIDDEN=hidden, LANES=lanes
    )
    return out


def _places(
    ids: Tensor, pairs: Any, count: int, cut: Mapping[str, int], through: Through
) -> tuple[Tensor, Tensor, tuple[Any, Any]]:
    """The pairs of each tile, its expert, and how many tiles any routing needs, of either kind."""
    few: Any = torch.sym_min(pairs, ROWS_EACH * count)
    low, high = (
        (some + cut[rows] - 1) // cut[rows] + torch.sym_min(some, count)
        for some, rows in ((few, "FEW_ROWS"), (pairs, "ROWS"))
    )
    tiles = torch.sym_max(low, high)
    slots = ids.new_empty((torch.sym_max(low * cut["FEW_ROWS"], high * cut["ROWS"]),))
    owners = ids.new_empty((tiles,))
    through(experts.expert_tiles)[(count,)](
        ids,
        slots,
        owners,
        pairs,
        tiles,
        EXPERTS=count,
        LANES=power_of_two(count + 1),
        ROWS=cut["ROWS"],
        CHUNK=CHUNK,
        FEW=ROWS_EACH * count,
        FEW_ROWS=cut["FEW_ROWS"],
    )
    return slots, owners, (low, high)


def _programs(columns: int, cut: Mapping[str, int], tiles: tuple[Any, Any]) -> Any:
    """Of a grid: tiles of either kind by those of columns. Factors stay inside of the maximum."""
    wide = -(-columns // cut["TILE_N"])
    return torch.sym_max(*(wide * some for some in tiles))


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
