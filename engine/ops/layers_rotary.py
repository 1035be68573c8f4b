"""Rotary position embedding as an operator layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.custom_op import CustomOp

Pair = tuple[Tensor, Tensor]
"""Rotated queries and keys."""


class RotaryEmbedding(CustomOp):
    """Rotary position embedding, halves paired (NeoX), possibly of only the first R values.

    Args:
        head_dim: values a head.

    forward(q [T, H*D], k [T, KV*D], cos [T, R/2], sin [T, R/2]) -> (q, k); cos and sin are fp32.
    """

    op = "rotary_embedding"
    operators = ("rotary_embedding",)

    def __init__(self, head_dim: int, *, choice: OpChoice | None = None) -> None:
        super().__init__(choice, head_dim=head_dim)
        self.head_dim = head_dim

    def alike(self, *args: Any) -> Sequence[Tensor | None]:
        """Queries and keys; the angles are fp32 whatever these are."""
        return args[:2]

    def forward_native(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Pair:
        """Plain torch; products in fp32, rounded once."""
        return self._rotate(q, cos, sin), self._rotate(k, cos, sin)

    def forward_kernel(self, ops: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Pair:
        """Both in one call."""
        return cast(Pair, ops.rotary_embedding(q, k, cos, sin, self.head_dim))

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = cos.shape[-1]
        heads = x.view(x.shape[0], x.shape[1] // self.head_dim, self.head_dim)
        low, high = heads[..., :half].float(), heads[..., half : 2 * half].float()
        cos, sin = cos[:, None, :], sin[:, None, :]
        turned = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(x.dtype)
        if 2 * half < self.head_dim:
            turned = torch.cat((turned, heads[..., 2 * half :]), dim=-1)
        return turned.flatten(-2)
