"""A projection of the built-in decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    """A projection whose weights come from bindings, so nothing is drawn when it is built."""

    def __init__(self, inner: int, outer: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outer, inner), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outer), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x [..., inner] -> [..., outer]."""
        return nn.functional.linear(x, self.weight, self.bias)
