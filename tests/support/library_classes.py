"""Decorated classes and functions for tests of the library."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor, nn

import vcc
from vcc.engine.monitor import Counters

COUNTERS = Counters()

RANGE = {"T": (1, 32)}


@vcc.support_torch_compile(sizes=RANGE, counters=COUNTERS)
class Block(nn.Module):
    """Dimension 0 of `x` and `y` is inferred."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor, y: Optional[Tensor] = None, scale: float = 1.0) -> Tensor:  # noqa: UP045
        found = torch.relu(self.linear(x)) * scale
        return found if y is None else found + y


class Child(Block):
    """Compiled, as what it inherits from."""


@vcc.ignore_torch_compile
class Ignored(Block):
    """Not compiled."""


class Grandchild(Ignored):
    """Not compiled either."""


@vcc.support_torch_compile(dynamic_arg_dims={"x": 0}, sizes=RANGE, counters=COUNTERS)
class Again(Ignored):
    """Compiled, though what it inherits from is not."""


@vcc.support_torch_compile(
    sizes=RANGE, counters=COUNTERS, enable_if=lambda config: config.level is not None
)
class Sometimes(Block):
    """Compiled where its configuration names a level."""


class Outer(nn.Module):
    """Holds a decorated module."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x) + 1


@vcc.cache_compiled(dynamic_arg_dims={"x": 0}, sizes=RANGE, counters=COUNTERS)
def scaled(x: Tensor, by: float = 2.0) -> Tensor:
    """Says what it is."""
    return torch.softmax(x * by, dim=-1)
