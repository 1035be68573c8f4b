"""A golden's arguments as torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.graphs.golden import Argument, draw, draw_integers


def draw_arguments(name: str, arguments: Sequence[Argument], below: int) -> list[torch.Tensor]:
    """The arguments of the piece called `name`, equal in every process.

    Args:
        name: the piece's id.
        arguments: geometry, in order.
        below: integers are drawn in [0, below).
    """
    return [_draw(name, index, one, below) for index, one in enumerate(arguments)]


def _draw(name: str, index: int, one: Argument, below: int) -> torch.Tensor:
    dtype = DTYPES[one.dtype]
    drawn = draw(name, index, one) if dtype.is_floating_point else None
    block = draw_integers(name, index, one, below) if drawn is None else drawn
    return _tiled(torch.from_numpy(block).to(dtype), one.shape)


def _tiled(block: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """`block` over and over in the given shape; a large weight needs no second copy of itself."""
    out = torch.empty(prod(shape), dtype=block.dtype)
    if len(block):
        whole = len(out) // len(block) * len(block)
        out[:whole].view(-1, len(block)).copy_(block)
        out[whole:] = block[: len(out) - whole]
    return out.view(tuple(shape))


def poison(buffers: Sequence[torch.Tensor]) -> None:
    """Fill with what no result may keep: an element that is not written shows."""
    for buffer in buffers:
        buffer.fill_(float("nan") if buffer.is_floating_point() else 0)
