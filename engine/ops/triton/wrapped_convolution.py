"""Convolutions of images whose pixels hold their channels side by side, as launches in a piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops.triton.convolution import convolution as kernel
from vcc.engine.ops.triton.wrapped import large_shared

Through = Callable[[Any], Any]
"""What makes a kernel launchable: `wrap_triton`, or the identity for the interpreter."""

ENOUGH = 128
"""Programs that keep a device busy; fewer are cut along their sum."""

MOST_PARTS, LEAST_STEPS = 7, 4
"""Parts of a sum at most, which Inductor adds in the kernel of whoever reads it, and least steps
of one."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Places, filters and channels of a program's tile, and its warps."""

    m: int
    n: int
    k: int
    warps: int


TILES: Mapping[int, tuple[Tile, ...]] = {
    2: (Tile(128, 128, 64, 8), Tile(128, 64, 64, 4), Tile(64, 64, 64, 4), Tile(64, 64, 32, 4)),
    4: (Tile(64, 64, 32, 4),),
}
"""By bytes of an element, the largest first."""

CHANNELS = 32
"""What channels are a multiple of: the least depth of a tile."""


@dataclass(frozen=True, slots=True)
class Form:
    """Sizes of a convolution of two dimensions: those down, and those across.

    Attributes:
        size: of the image.
        taps: of a filter.
        stride, padding, dilation: as torch has them.
    """

    size: tuple[int, int]
    taps: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def out(self) -> tuple[int, int]:
        """Sizes of the result."""
        down, across = (
            (size + 2 * pad - apart * (taps - 1) - 1) // step + 1
            for size, taps, step, pad, apart in zip(
                self.size, self.taps, self.stride, self.padding, self.dilation, strict=True
            )
        )
        return down, across

    def named(self) -> dict[str, int]:
        """As the kernel takes them."""
        names = ("STRIDE", "PAD", "APART")
        fields = (self.stride, self.padding, self.dilation)
        found = {"HEIGHT": self.size[0], "WIDTH": self.size[1]}
        found |= {"OUT_HEIGHT": self.out[0], "OUT_WIDTH": self.out[1]}
        found |= {"TAPS_DOWN": self.taps[0], "TAPS_ACROSS": self.taps[1]}
        for name, (down, across) in zip(names, fields, strict=True):
            found |= {f"{name}_DOWN": down, f"{name}_ACROSS": across}
        return found


def convolved_places(
    image: Tensor, weight: Tensor, form: Form, *, through: Through = torch.library.wrap_triton
) -> Tensor:
    """[places, filters] of an image.

    Args:
        image: dense [N, height, width, channels]; channels are a multiple of CHANNELS.
        weight: dense [filters, taps down, taps across, channels].
        form: the sizes.
        through: see `Through`.
    """
    channels, filters = image.shape[3], weight.shape[0]
    places = image.shape[0] * form.out[0] * form.out[1]
    steps = form.taps[0] * form.taps[1] * channels
    tile, parts = choice(places, filters, steps, channels, image.element_size())
    dtype = torch.float32 if parts > 1 else image.dtype
    out = image.new_empty((parts, places, filters), dtype=dtype)
    grid = (_tiles(places, tile.m), _tiles(filters, tile.n), parts)
    fields = {"CHANNELS": channels, "FILTERS": filters, "PARTS": parts, **form.named()}
    tiles = {"TILE_M": tile.m, "TILE_N": tile.n, "TILE_K": tile.k}
    options = {"num_warps": tile.warps, "num_stages": 3 if large_shared(image) else 2}
    through(kernel)[grid](image, weight, out, places, **fields, **tiles, **options)
    if parts == 1:
        return out[0]
    # The conversion that Inductor has left behind its decompositions.
    summed: Tensor = torch.ops.prims.convert_element_type.default(out.sum(0), image.dtype)
    return summed


def choice(places: Any, filters: int, depth: int, channels: int, item: int) -> tuple[Tile, int]:
    """The tile of a convolution, and the parts of its sum.

    Args:
        places: rows; an integer, or a size that moves.
        filters: columns.
        depth: what is summed over.
        channels: of the image.
        item: bytes of an element.
    """
    least = min(one.n for one in TILES[item])
    whole = max(filters, least)  # a wider tile computes columns that nobody wants
    fitting = [one for one in TILES[item] if channels % one.k == 0 and one.n <= whole]
    if not isinstance(places, int):
        return fitting[-1], 1
    for one in fitting:
        if _programs(one, places, filters) >= ENOUGH:
            return one, 1
    last = fitting[-1]
    wanted = -(-ENOUGH // _programs(last, places, filters))
    return last, max(1, min(MOST_PARTS, wanted, depth // last.k // LEAST_STEPS))


def _programs(tile: Tile, places: int, filters: int) -> int:
    return int(_tiles(places, tile.m) * _tiles(filters, tile.n))


def _tiles(size: Any, tile: int) -> Any:
    return (size + tile - 1) // tile
