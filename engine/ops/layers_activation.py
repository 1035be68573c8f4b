"""Gated activations as operator layers."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.custom_op import CustomOp


class SiluAndMul(CustomOp):
    """`silu(x[..., :d]) * x[..., d:]` for `x[..., 2d]`."""

    op = "silu_and_mul"
    operators = ("silu_and_mul",)

    def __init__(self, *, choice: OpChoice | None = None) -> None:
        super().__init__(choice)

    def forward_native(self, x: Tensor) -> Tensor:
        """Plain torch."""
        gate, up = x.chunk(2, dim=-1)
        return nn.functional.silu(gate) * up

    def forward_kernel(self, ops: Any, x: Tensor) -> Tensor:
        """One pass over the row."""
        return cast(Tensor, ops.silu_and_mul(x))


class GeluTanhAndMul(CustomOp):
    """`gelu(x[..., :d], tanh form) * x[..., d:]` for `x[..., 2d]`."""

    op = "gelu_tanh_and_mul"
    operators = ("gelu_and_mul",)

    def __init__(self, *, choice: OpChoice | None = None) -> None:
        super().__init__(choice, tanh=1)

    def forward_native(self, x: Tensor) -> Tensor:
        """Plain torch."""
        gate, up = x.chunk(2, dim=-1)
        return nn.functional.gelu(gate, approximate="tanh") * up

    def forward_kernel(self, ops: Any, x: Tensor) -> Tensor:
        """One pass over the row."""
        return cast(Tensor, ops.gelu_and_mul(x, True))
