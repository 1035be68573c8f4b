"""A program with a function that torch.compile compiles, for docs/guests.md."""

from __future__ import annotations

import torch


@torch.compile
def pooled(x: torch.Tensor) -> torch.Tensor:
    """The mean of a softened input."""
    return torch.nn.functional.softplus(x).mean(dim=-1)


if __name__ == "__main__":
    pooled(torch.ones(8, 64))
    print("ready")
