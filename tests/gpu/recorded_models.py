"""Modules that are recorded, or that cannot be."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Mlp(nn.Module):
    """Two layers, a norm and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)
        self.norm = nn.LayerNorm(256)
        self.register_buffer("shift", torch.arange(256.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.down(torch.relu(self.up(x)))) + self.shift


class Unwritten(nn.Module):
    """Reads memory that it did not write."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w + torch.empty_like(x)


class Asking(nn.Module):
    """Waits for a value on the host in the middle of a step."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w if float(x.sum()) > 0 else x


class Counting(nn.Module):
    """Does something else in each call, which a graph cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.calls = nn.Parameter(torch.ones(16)), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.w + self.calls
