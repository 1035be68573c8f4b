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
    """Sizes of a tile of the experts' products.

    Args:
        rows, n, k: of one program.
    """

    rows: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Tiling:
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


TILINGS: Mapping[int, Tiling] = {
    2: Tiling(Tile(16, 64, 128), Tile(64, 128, 64)),
    4: Tiling(Tile(16, 32, 32), Tile(16, 32, 32), small_stages=3),
}
"""By bytes of an element: 16-bit operands on tensor cores, fp32 on the ordinary ones.

Those of 16 bits are the best of seven candidates on an H200, for 128 experts of 768 values.
"""


@dataclass(frozen=True, slots=True)
class Places:
    """Pairs of a row and one of its experts in tiles: low ones where few rows share an expert.

    Attributes:
        slots: int32, the pairs of each tile; -1 where there is none.
        owners: int32 [tiles], the expert of each tile.
        tiles: as many as any routing needs, of either kind.
        low, high: the same of low tiles, and of the others.
    """

    slots: Tensor
    owners: Tensor
    tiles: Any
    low: Any
    high: Any

    def programs(self, columns: int, few_n: int, many_n: int) -> Any:
        """Of a grid: tiles by those of columns, `few_n` or `many_n` wide.

        Factors stay inside of the maximum, where sizes can be written as expressions.
        """
        return torch.sym_max(-(-columns // few_n) * self.low, -(-columns // many_n) * self.high)


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
    tiling = TILINGS[x.element_size()]
    few, many = tiling.few, tiling.many
    pairs: Any = tokens * top_k
    most = tiling.rows_each * count
    at = placed(ids, pairs, count, most, (few.rows, many.rows), through)
    sizes: Any = {"HIDDEN": hidden, "WIDTH": width, "TILE_N": many.n, "TILE_K": many.k}
    sizes |= {"FEW_N": few.n, "FEW_K": few.k}
    sizes |= {"FEW": most, "FEW_ROWS": few.rows, "ROWS": many.rows}
    sizes["num_stages"] = tiling.stages if large_shared(x) else tiling.small_stages
    inner = x.new_empty((pairs, width))
    through(kernels.expert_up)[(at.programs(width, few.n, many.n),)](
        x, gate_up, at.slots, at.owners, inner, pairs, at.tiles, TOP_K=top_k, **sizes
    )
    parts = x.new_empty((pairs, hidden))
    through(kernels.expert_down)[(at.programs(hidden, few.n, many.n),)](
        inner, down, weights, at.slots, at.owners, parts, pairs, at.tiles, **sizes
    )
    return summed(x, parts, ids, through)


def placed(
    ids: Tensor, pairs: Any, count: int, most: int, rows: tuple[int, int], through: Through
) -> Places:
    """Launch what sorts pairs into tiles.

    Args:
        ids: int32 [T, k], dense.
        pairs: T * k.
        count: experts.
        most: pairs up to which tiles are low.
        rows: of a low tile, and of another.
        through: as `Through`.
    """
    low = _tiles(torch.sym_min(pairs, most), rows[0], count)
    high = _tiles(pairs, rows[1], count)
    tiles = torch.sym_max(low, high)
    slots = ids.new_empty((torch.sym_max(low * rows[0], high * rows[1]),))
    owners = ids.new_empty((tiles,))
    through(kernels.expert_tiles)[(count,)](
        ids,
        slots,
        owners,
        pairs,
        tiles,
        EXPERTS=count,
        LANES=power_of_two(count + 1),
        CHUNK=CHUNK,
        FEW=most,
        FEW_ROWS=rows[0],
        ROWS=rows[1],
    )
    return Places(slots, owners, tiles, low, high)


def _tiles(pairs: Any, rows: int, count: int) -> Any:
    """As many as any routing of these pairs to `count` experts needs."""
    return (pairs + rows - 1) // rows + torch.sym_min(pairs, count)


def summed(x: Tensor, parts: Tensor, ids: Tensor, through: Through) -> Tensor:
    """Launch what adds the parts [T * k, H] of each row, into a tensor like x [T, H]."""
    tokens, top_k = ids.shape
    hidden = parts.shape[1]
    out, lanes = x.new_empty(x.shape), min(COLUMNS, power_of_two(hidden))
    through(kernels.expert_sum)[(tokens, -(-hidden // lanes))](
        parts, out, TOP_K=top_k, HIDDEN=hidden, LANES=lanes
    )
    return out


OPERATORS = ("topk_softmax", "topk_sigmoid", "moe_experts")
"""Operators that are functions of this module."""
