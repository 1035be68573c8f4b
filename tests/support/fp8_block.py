"""A feed-forward block with fp8 activations, written as checkpoints with static scales run it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

FP8 = torch.float8_e4m3fn


def static(x: Tensor, scale: Tensor) -> Tensor:
    """x over a given scale."""
    return (x.float() / scale).clamp(-448, 448).to(FP8)


def dynamic(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """x over a scale of each block of a row."""
    wide = x.float().unflatten(-1, (-1, block))
    scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return (wide / scale).clamp(-448, 448).to(FP8).flatten(-2), scale


class Fp8Block(nn.Module):
    """Norm, fp8, gate and up, silu, fp8, down, residual, norm, fp8 by block.

    Args:
        width, inner: of a row, and of the gated layer.
        block: values that share a scale.
    """

    def __init__(self, width: int = 64, inner: int = 128, block: int = 32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.block = block
        self.norms = nn.ParameterList(
            nn.Parameter(0.7 + 0.6 * torch.rand(width, generator=generator)) for _ in range(2)
        )
        shapes = ((2 * inner, width), (width, inner), (width, width))
        for name, (rows, columns) in zip(("up", "down", "out"), shapes, strict=True):
            data = torch.randn(rows, columns, generator=generator) / columns**0.5
            self.register_buffer(name, data.to(FP8))
        self.register_buffer("scales", torch.tensor([0.02, 0.01]))

    def forward(self, x: Tensor) -> Tensor:
        """x [T, width] -> [T, width]."""
        first = static(self._norm(x, 0), self.scales[0])
        gate, up = self._product(first, self.up, self.scales[0], x).chunk(2, -1)
        inner = static(nn.functional.silu(gate) * up, self.scales[1])
        x = x + self._product(inner, self.down, self.scales[1], x)
        last, scale = dynamic(self._norm(x, 1), self.block)
        wide = (last.float().unflatten(-1, (-1, self.block)) * scale).flatten(-2)
        return x + self._product(wide, self.out, self.scales[1] * 0 + 1, x)

    def _norm(self, x: Tensor, index: int) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.norms[index] * wide.to(x.dtype)

    def _product(self, x: Tensor, weight: Tensor, scale: Tensor, like: Tensor) -> Tensor:
        """Dequantise, then multiply: what the rule for fp8 compares with."""
        return nn.functional.linear((x.float() * scale).to(like.dtype), weight.to(like.dtype))


def factory() -> Any:
    """For `support.fp8_block:factory`."""
    return Fp8Block()
