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
from vcc.engine.ops.triton.wrapped import large_shared

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


@dataclass(frozen=True, slots=True)
class Cut:
    """Tiles for few rows an expert and for many.

    Args:
        few, many: tiles; a low one reads weights as fast, and computes less that nobody needs.
        rows_each: rows an expert, in the mean, up to which `few` is taken.
        stages: loads on their way, Triton's option.
        small_stages: the same where a block has little shared memory.
    """

    few: Tile
    many: Tile
    rows_each: int = 16
    stages: int = 3
    small_stages: int = 2


CUTS: Mapping[int, Cut] = {
    2: Cut(Tile(16, 64, 128), Tile(64, 128, 64)),
    4: Cut(Tile(16, 32, 32), Tile(16, 32, 32), small_stages=3),
}
"""By bytes of an element: 16-bit operands on tensor cores, fp32 on the ordinary ones.

Those of 16 bits are the best of seven candidates on an H200, for 128 experts of 768 values.
"""


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
    cut = CUTS[x.element_size()]
    pairs: Any = tokens * top_k
    few = cut.rows_each * count
    low, high = _tiles(torch.sym_min(pairs, few), cut.few, count), _tiles(pairs, cut.many, count)
    tiles = torch.sym_max(low, high)
    slots = ids.new_empty((torch.sym_max(low * cut.few.rows, high * cut.many.rows),))
    owners = ids.new_empty((tiles,))
    few_rows = {"FEW": few, "FEW_ROWS": cut.few.rows, "ROWS": cut.many.rows}
    through(kernels.expert_tiles)[(count,)](
        ids,
        slots,
        owners,
        pairs,
        tiles,
        EXPERTS=count,
        LANES=power_of_two(count + 1),
        CHUNK=CHUNK,
        **few_rows,
    )
    sizes: Any = {"HIDDEN": hidden, "WIDTH": width, "TILE_N": cut.many.n, "TILE_K": cut.many.k}
    sizes |= {"FEW_N": cut.few.n, "FEW_K": cut.few.k, **few_rows}
    sizes["num_stages"] = cut.stages if large_shared(x) else cut.small_stages

    def programs(columns: int) -> Any:
        each = (-(-columns // one.n) for one in (cut.few, cut.many))
        return torch.sym_max(*(a * b for a, b in zip(each, (low, high), strict=True)))

    inner = x.new_empty((pairs, width))
    through(kernels.expert_up)[(programs(width),)](
        x, gate_up, slots, owners, inner, pairs, tiles, TOP_K=top_k, **sizes
    )
    parts = x.new_empty((pairs, hidden))
    through(kernels.expert_down)[(programs(hidden),)](
        inner, down, weights, slots, owners, parts, pairs, tiles, **sizes
    )
    out, lanes = x.new_empty(x.shape), min(COLUMNS, power_of_two(hidden))
    through(kernels.expert_sum)[(tokens, -(-hidden // lanes))](
        parts, out, TOP_K=top_k, HIDDEN=hidden, LANES=lanes
    )
    return out


def _tiles(pairs: Any, tile: Tile, count: int) -> Any:
    """As many as any routing of these pairs to `count` experts needs."""
    return (pairs + tile.rows - 1) // tile.rows + torch.sym_min(pairs, count)


OPERATORS = ("topk_softmax", "topk_sigmoid", "moe_experts")
"""Operators that are functions of this module."""
