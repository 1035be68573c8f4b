"""Modules and functions that tests of the library compile; their source is in the key."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SCALE = 2.0


class Small(nn.Module):
    """Writes to a buffer and to an input, takes a value that is fixed, returns a tree."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.scale = scale
        self.linear = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("table", torch.arange(4.0), persistent=False)

    def forward(self, x: Tensor, y: Tensor | None = None, flag: bool = False) -> dict[str, object]:
        self.seen.add_(1)
        x.mul_(2)
        z = self.linear(x) * self.scale + self.table
        shown = torch.clamp(z, -1, 1) if flag else torch.softmax(z, -1)
        return {"z": z, "more": (shown, None if y is None else [y + x, z.amax(-1)])}


class Plain(nn.Module):
    """One matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) * SCALE


class Returns(nn.Module):
    """Returns what it is told to, which no artifact can hold."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> object:
        return {"size": x.shape[0], "set": {1}, "number": 3.0}[self.kind]


class Constant(nn.Module):
    """Writes to a buffer that an artifact has a copy of."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x + self.count


class Held(nn.Module):
    """Has an attribute of any kind."""

    def __init__(self, held: object) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: Tensor) -> Tensor:
        return x


class Words:
    """A configuration as many models have one."""

    def __init__(self, **words: object) -> None:
        self.__dict__.update(words)


def scores(x: Tensor, scale: float = 1.0) -> Tensor:
    """A function to decorate."""
    return torch.softmax(x * scale * SCALE, dim=-1)
