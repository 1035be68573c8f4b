"""Attention of torch's own function as one launch of our Triton kernel in a piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops.triton.fused_attention import fused_attention as kernel
from vcc.engine.ops.triton.sizes import power_of_two
from vcc.engine.ops.triton.wrapped import shared_memory
from vcc.engine.torch_shim.fake import expression

Through = Callable[[Any], Any]
"""What makes a kernel launchable: `wrap_triton`, or the identity for the interpreter."""

LEAST_LANES, UNIT = 16, 16
"""Values of a head that a product takes at least; elements that the strides of heads and rows are
known to be multiples of at most."""

ENOUGH = 128
"""Programs that keep a device busy."""

SPARE = 16 << 10
"""Bytes of shared memory for what a program moves between its threads."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Queries and keys of a program's tile, its warps, and stages of the pipeline of keys."""

    m: int
    n: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles for many programs, for sizes that move, and for few programs."""

    many: Tile
    moving: Tile
    few: Tile


TILES: Mapping[tuple[int, int, bool], Tiles] = {
    (2, 32, False): Tiles(Tile(128, 32, 4, 3), Tile(64, 32, 4, 3), Tile(32, 32, 2, 3)),
    (2, 32, True): Tiles(Tile(128, 32, 4, 3), Tile(64, 32, 4, 3), Tile(32, 32, 2, 3)),
    (2, 64, False): Tiles(Tile(128, 32, 4, 3), Tile(64, 64, 4, 3), Tile(64, 64, 4, 3)),
    (2, 64, True): Tiles(Tile(64, 64, 4, 3), Tile(64, 64, 4, 3), Tile(32, 64, 4, 3)),
    (2, 128, False): Tiles(Tile(128, 64, 8, 3), Tile(64, 64, 4, 3), Tile(64, 64, 4, 3)),
    (2, 128, True): Tiles(Tile(64, 64, 4, 3), Tile(64, 64, 4, 3), Tile(32, 64, 4, 3)),
}
"""By bytes of an element, lanes of a head at most, and whether a mask has rows that differ."""

PLAIN = Tile(32, 32, 4, 1)
"""For fp32, whose products are none of the tensor cores."""

LEAST = Tile(64, 32, 4, 2)
"""Fits the shared memory of every device, with a mask of fp32 too."""


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    *,
    through: Through = torch.library.wrap_triton,
) -> Tensor:
    """As `torch.ops.vcc.plain_attention`, which says what the arguments are."""
    q, k, v = (_four(_dense_rows(one)) for one in (query, key, value))
    seen = None if mask is None else _four(mask.contiguous() if _apart(mask) else mask)
    (batch, heads, tokens, dim), width = q.shape, v.shape[3]
    out, o = _result(query, width)
    lanes, form = (lanes_of(dim), lanes_of(width)), _form(seen)
    tile = choice(q, tokens, batch * heads, lanes, _bytes_of_rows(seen))
    constants = {
        "SCALE": float(scale),
        "GROUP": _quotient(heads, k.shape[1]),
        "CAUSAL": is_causal,
        "HEAD_DIM": dim,
        "VALUE_DIM": width,
        "DIMS": lanes[0],
        "VALUE_DIMS": lanes[1],
        **{f"{name}_UNIT": _unit(one) for name, one in zip("QKV", (q, k, v), strict=True)},
        "TILE_M": tile.m,
        "TILE_N": tile.n,
        **form,
    }
    steps = [step for one in (q, k, v) for step in one.stride()[:3]]
    steps += (0, 0, 0) if seen is None else _steps(seen)
    grid = ((tokens + tile.m - 1) // tile.m * batch * heads,)
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    # A pointer that no launch reads stands for the mask that is not there.
    given = (q, k, v, q if seen is None else seen, o, tokens, k.shape[2], heads)
    through(kernel)[grid](*given, *steps, *o.stride()[:3], **constants, **options)
    return out


def choice(q: Tensor, tokens: Any, heads: Any, lanes: tuple[int, int], mask: int) -> Tile:
    """The tile of a launch: that of the table, or a smaller one where its block does not fit.

    Args:
        q: on the device, or on the one that a build is for.
        tokens: rows of a head; an integer, or a size that moves.
        heads: of all batches together.
        lanes: of a key and of a value.
        mask: bytes of what a mask has for one row and key; 0 where its rows are alike.
    """
    item = q.element_size()
    if item == 4:
        return PLAIN
    known = next(one for one in (32, 64, 128) if max(lanes) <= one)
    tiles = TILES[item, known, mask > 0]
    tile = tiles.moving
    if isinstance(tokens, int) and isinstance(heads, int):
        tile = tiles.many if -(-tokens // tiles.many.m) * heads >= ENOUGH else tiles.few
    room = shared_memory(q)
    for one in (tile, replace(tile, stages=2)):
        if not room or block_bytes(one, item, lanes, mask) <= room:  # the interpreter has any
            return one
    return LEAST


def block_bytes(tile: Tile, item: int, lanes: tuple[int, int], mask: int) -> int:
    """Shared memory of a block: its queries, and keys, values and mask once a stage."""
    stage = tile.n * sum(lanes) * item + tile.m * tile.n * mask
    return tile.m * lanes[0] * item + tile.stages * stage + SPARE


def _result(query: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The result, and the same memory as the kernel writes it: tokens outside of heads."""
    if query.dim() < 4:
        out = query.new_empty((*query.shape[:-1], width))
        return out, _four(out)
    batch, heads, tokens, _ = query.shape
    out = query.new_empty((batch, tokens, heads, width)).permute(0, 2, 1, 3)
    return out, out


def _four(x: Tensor) -> Tensor:
    while x.dim() < 4:
        x = x.unsqueeze(0)
    return x


def _dense_rows(x: Tensor) -> Tensor:
    """The values of a row beside each other."""
    return x if _is(x.stride(-1), 1) else x.contiguous()


def _apart(mask: Tensor) -> bool:
    """Whether a mask's keys lie apart."""
    return not _is(mask.shape[-1], 1) and not any(_is(mask.stride(-1), one) for one in (0, 1))


def _form(mask: Tensor | None) -> dict[str, int]:
    """What a mask is, as the kernel is told."""
    if mask is None:
        return {"MASK": 0, "MASK_ROWS": 0, "MASK_KEYS": 0}
    keys = 0 if _is(mask.shape[3], 1) else int(mask.stride(3))
    rows = not _is(_steps(mask)[2], 0)
    return {"MASK": 1 if mask.dtype is torch.bool else 2, "MASK_ROWS": rows, "MASK_KEYS": keys}


def _bytes_of_rows(mask: Tensor | None) -> int:
    """Bytes of an element of a mask whose rows differ."""
    return mask.element_size() if mask is not None and _form(mask)["MASK_ROWS"] else 0


def lanes_of(width: int) -> int:
    """A power of two that holds a head, and that a product takes."""
    return max(LEAST_LANES, power_of_two(width))


def _steps(mask: Tensor) -> list[Any]:
    """Strides of a mask; what is there once is there for all."""
    pairs = zip(mask.shape[:3], mask.stride()[:3], strict=True)
    return [0 if _is(size, 1) else step for size, step in pairs]


def _unit(x: Tensor) -> int:
    """What the strides of heads and rows are multiples of, up to UNIT."""
    found = UNIT
    for step in x.stride()[:3]:
        found = gcd(found, step) if isinstance(step, int) else _common(found, step)
    return found


def _common(found: int, step: Any) -> int:
    """The largest power of two, at most `found`, that a size that moves is a multiple of."""
    while found > 1 and expression(step) % found != 0:
        found //= 2
    return found


def _quotient(heads: Any, shared: Any) -> int:
    both = isinstance(heads, int) and isinstance(shared, int)
    return heads // shared if both else 1


def _is(size: Any, number: int) -> bool:
    return isinstance(size, int) and size == number
