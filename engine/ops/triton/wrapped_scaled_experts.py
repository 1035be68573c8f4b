"""Experts with fp8 weights inside pieces as Triton kernels, in the manner of `wrapped_experts.py`.

Rows, and what the first products make of them, are quantised in plain torch between the launches:
the compiler of the piece makes a kernel of that, which sees rows whole.
"""

from __future__ import annotations

from collections.abc import Callable
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

TILES = {"ROWS": 64, "TILE_N": 64, "BLOCK": BLOCK, "STAGES": 3}
"""First choices: up to 64 rows of an expert read its weights once."""

WARPS = 4


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
    tiles: Any = (pairs + TILES["ROWS"] - 1) // TILES["ROWS"] + torch.sym_min(pairs, count)
    places = _places(ids, pairs, tiles, count, through)
    by_block, flat = gate_up_scale.dim() == 3, ids.flatten()
    form = {"BY_BLOCK": by_block, "HIDDEN": hidden, "WIDTH": width, **TILES, "num_warps": WARPS}
    # With scales of experts a row is another one for each of its experts.
    own = x if x_scale is None else x.repeat_interleave(top_k, 0)
    values, scale, moving = _quantised(own, x_scale, flat, by_block, least)
    inner = x.new_empty((pairs, width))
    through(kernels.scaled_expert_up)[(-(-width // TILES["TILE_N"]), tiles)](
        values,
        gate_up,
        scale,
        gate_up_scale,
        *places,
        inner,
        SHARE=top_k if x_scale is None else 1,
        MOVING=moving,
        BY_ROW=gate_up_scale.shape[1] == 2 * width,
        **form,
    )
    values, scale, moving = _quantised(inner, inner_scale, flat, by_block, least)
    parts = x.new_empty((pairs, hidden), dtype=torch.float32)
    through(kernels.scaled_expert_down)[(-(-hidden // TILES["TILE_N"]), tiles)](
        values,
        down,
        scale,
        down_scale,
        weights,
        *places,
        parts,
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
    ids: Tensor, pairs: Any, tiles: Any, count: int, through: Through
) -> tuple[Tensor, Tensor]:
    """The pairs of each tile, and its expert."""
    slots, owners = ids.new_empty((tiles * TILES["ROWS"],)), ids.new_empty((tiles,))
    through(experts.expert_tiles)[(count,)](
        ids,
        slots,
        owners,
        pairs,
        tiles,
        EXPERTS=count,
        LANES=power_of_two(count + 1),
        ROWS=TILES["ROWS"],
        CHUNK=CHUNK,
    )
    return slots, owners


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
