"""Norms as operator layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.custom_op import CustomOp

Normed = Tensor | tuple[Tensor, Tensor]
"""The norm, or the norm and the sum that it is of."""


class RMSNorm(CustomOp):
    """`x / rms(x) * (weight_offset + weight)` over the last dimension, statistics in fp32.

    Args:
        dim: size of the last dimension.
        eps: added to the mean square.
        weight_offset: 0, or 1 for models that store the weight minus one (Gemma).

    forward(x) -> normalised x; forward(x, residual) -> (norm(x + residual), x + residual).
    """

    op = "rms_norm"
    operators = ("rms_norm", "fused_add_rms_norm")

    def __init__(
        self,
        dim: int,
        eps: float = 1e-6,
        weight_offset: float = 0.0,
        *,
        choice: OpChoice | None = None,
    ) -> None:
        super().__init__(choice, width=dim, weight_offset=weight_offset)
        self.eps, self.weight_offset = eps, weight_offset
        self.weight = nn.Parameter(torch.ones(dim), requires_grad=False)

    def alike(self, *args: Any) -> Sequence[Tensor | None]:
        """Activations, residual and weight."""
        return (*args, self.weight)

    def forward_native(self, x: Tensor, residual: Tensor | None = None) -> Normed:
        """Plain torch; everything in fp32, rounded once."""
        if residual is None:
            return self._norm(x)
        total = x + residual
        return self._norm(total), total

    def forward_kernel(self, ops: Any, x: Tensor, residual: Tensor | None = None) -> Normed:
        """One pass over the row, rounded once."""
        rest = (self.weight, self.eps, self.weight_offset)
        if residual is None:
            return cast(Tensor, ops.rms_norm(x, *rest))
        return cast(tuple[Tensor, Tensor], ops.fused_add_rms_norm(x, residual, *rest))

    def _norm(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (scaled * (self.weight_offset + self.weight.float())).to(x.dtype)
