"""A golden's arguments as torch tensors."""

from __future__ import annotations

from collections.abc import Sequence

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
    if not dtype.is_floating_point:
        return torch.from_numpy(draw_integers(name, index, one.shape, below)).to(dtype)
    return torch.from_numpy(draw(name, index, one.shape, one.symbolic)).to(dtype)


def poison(buffers: Sequence[torch.Tensor]) -> None:
    """Fill with what no result may keep: an element that is not written shows."""
    for buffer in buffers:
        buffer.fill_(float("nan") if buffer.is_floating_point() else 0)
