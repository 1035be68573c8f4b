"""Routing and experts as Triton kernels in a piece: each launch is a node, sized by T alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops.triton import experts as kernels
from vcc.engine.ops.triton import router as routers
from vcc.engine.ops.triton.sizes import power_of_two

Through = Callable[[Any], Any]
"""What makes a kernel launchable: `wrap_triton`, or the identity for the interpreter."""

CHUNK = 256
"""Pairs that a program sorts at a time."""

COLUMNS = 1024
"""Columns of a program that adds."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How the experts' products are cut.

    Args:
        rows, n, k: of one program.
    """

    rows: int
    n: int
    k: int


TILES: Mapping[int, Tile] = {2: Tile(64, 64, 64), 4: Tile(16, 32, 32)}
"""By bytes of an element: 16-bit operands on tensor cores, fp32 on the ordinary ones."""


def topk_softmax(
    logits: Tensor,
    top_k: int,
    renormalise: bool,
    *,
    through: Through = torch.library.wrap_triton,
) -> tuple[Tensor, Tensor]:
    """As `torch.ops.vcc.topk_softmax`."""
    return _routed(routers.topk_softmax, logits, top_k, renormalise, through)


def topk_sigmoid(
    logits: Tensor,
    top_k: int,
    renormalise: bool,
    *,
    through: Through = torch.library.wrap_triton,
) -> tuple[Tensor, Tensor]:
    """As `torch.ops.vcc.topk_sigmoid`."""
    return _routed(routers.topk_sigmoid, logits, top_k, renormalise, through)


def _routed(
    kernel: Any, logits: Tensor, top_k: int, renormalise: bool, through: Through
) -> tuple[Tensor, Tensor]:
    logits = logits.contiguous()
    count = logits.shape[1]
    weights = logits.new_empty((logits.shape[0], top_k), dtype=torch.float32)
    ids = logits.new_empty((logits.shape[0], top_k), dtype=torch.int32)
    sizes = {"EXPERTS": count, "LANES": power_of_two(count), "TOP_K": top_k}
    through(kernel)[(logits.shape[0],)](
        logits, weights, ids, RENORMALISE=bool(renormalise), **sizes
    )
    return weights, ids


def moe_experts(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    weights: Tensor,
    ids: Tensor,
    *,
    through: Through = torch.library.wrap_triton,
) -> Tensor:
    """As `torch.ops.vcc.moe_experts`."""
    x, weights, ids = (tensor.contiguous() for tensor in (x, weights, ids))
    count, hidden, width = down.shape
    tokens, top_k = ids.shape
    tile = TILES[x.element_size()]
    pairs: Any = tokens * top_k
    tiles: Any = (pairs + tile.rows - 1) // tile.rows + torch.sym_min(pairs, count)
    slots, owners = ids.new_empty((tiles * tile.rows,)), ids.new_empty((tiles,))
    through(kernels.expert_tiles)[(count,)](
        ids,
        slots,
        owners,
        pairs,
        tiles,
        EXPERTS=count,
        LANES=power_of_two(count + 1),
        ROWS=tile.rows,
        CHUNK=CHUNK,
    )
    cut = {"HIDDEN": hidden, "WIDTH": width, "ROWS": tile.rows, "TILE_N": tile.n, "TILE_K": tile.k}
    inner = x.new_empty((pairs, width))
    through(kernels.expert_up)[(-(-width // tile.n), tiles)](
        x, gate_up, slots, owners, inner, TOP_K=top_k, **cut
    )
    parts = x.new_empty((pairs, hidden))
    through(kernels.expert_down)[(-(-hidden // tile.n), tiles)](
        inner, down, weights, slots, owners, parts, **cut
    )
    out, lanes = x.new_empty(x.shape), min(COLUMNS, power_of_two(hidden))
    through(kernels.expert_sum)[(tokens, -(-hidden // lanes))](
        parts, out, TOP_K=top_k, HIDDEN=hidden, LANES=lanes
    )
    return out


OPERATORS = ("topk_softmax", "topk_sigmoid", "moe_experts")
"""Operators that are functions of this module."""
