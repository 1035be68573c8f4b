"""Operator layers: nn.Modules with one forward per back end, chosen once when they are built."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from vcc.cache.errors import UsageError
from vcc.engine.ops.choice import OpChoice, route


class CustomOp(nn.Module):
    """Base of the operator layers.

    A subclass sets `op`, defines `forward_native` (plain torch, what the compiler fuses) and any of
    the platform forwards of `choice.FORWARDS`. Constructing a layer for which the choice holds a
    replacement builds the replacement, which must be a subclass.

    Args:
        choice: enabled operators, platform and replacements.
    """

    op: ClassVar[str]

    def __new__(cls, *_: Any, choice: OpChoice | None = None, **__: Any) -> CustomOp:
        other = choice.replacement(cls.__name__) if choice else None
        if other is None:
            return super().__new__(cls)
        if not issubclass(other, cls):
            raise UsageError(
                f"cannot replace the layer {cls.__name__} by {other.__name__}",
                f"{other.__name__} is not a subclass of {cls.__name__}",
            )
        return super().__new__(other)

    def __init__(self, choice: OpChoice | None = None) -> None:
        super().__init__()
        chosen = route(self.op, type(self), choice or OpChoice())
        self.method, self.choice_reason = chosen.method, chosen.reason

    def forward(self, *args: Any) -> Any:
        """Run the forward that was chosen at construction."""
        return getattr(self, self.method)(*args)

    def forward_native(self, *args: Any) -> Any:
        """Plain torch; every layer has it."""
        raise NotImplementedError(type(self).__name__)


class RMSNorm(CustomOp):
    """`x / rms(x) * (weight_offset + weight)` over the last dimension, statistics in fp32.

    Args:
        dim: size of the last dimension.
        eps: added to the mean square.
        weight_offset: 0, or 1 for models that store the weight minus one (Gemma).

    forward(x) -> normalised x; forward(x, residual) -> (norm(x + residual), x + residual).
    """

    op = "rms_norm"

    def __init__(
        self,
        dim: int,
        eps: float = 1e-6,
        weight_offset: float = 0.0,
        *,
        choice: OpChoice | None = None,
    ) -> None:
        super().__init__(choice)
        self.eps, self.weight_offset = eps, weight_offset
        self.weight = nn.Parameter(torch.ones(dim), requires_grad=False)

    def forward_native(
        self, x: Tensor, residual: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Plain torch; everything in fp32, rounded once."""
        if residual is None:
            return self._norm(x)
        total = x + residual
        return self._norm(total), total

    def forward_cpu(
        self, x: Tensor, residual: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The compiled kernels: one pass over the row, rounded once."""
        ops, rest = torch.ops.vcc, (self.weight, self.eps, self.weight_offset)
        if residual is None:
            return cast(Tensor, ops.rms_norm(x, *rest))
        return cast(tuple[Tensor, Tensor], ops.fused_add_rms_norm(x, residual, *rest))

    def forward_triton(
        self, x: Tensor, residual: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The Triton kernels, each one launch of the piece it is traced into."""
        ops, rest = _triton(), (self.weight, self.eps, self.weight_offset)
        if residual is None:
            return cast(Tensor, ops.rms_norm(x, *rest))
        return cast(tuple[Tensor, Tensor], ops.fused_add_rms_norm(x, residual, *rest))

    def _norm(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (scaled * (self.weight_offset + self.weight.float())).to(x.dtype)


class SiluAndMul(CustomOp):
    """`silu(x[..., :d]) * x[..., d:]` for `x[..., 2d]`."""

    op = "silu_and_mul"

    def __init__(self, *, choice: OpChoice | None = None) -> None:
        super().__init__(choice)

    def forward_native(self, x: Tensor) -> Tensor:
        """Plain torch."""
        gate, up = x.chunk(2, dim=-1)
        return nn.functional.silu(gate) * up

    def forward_cpu(self, x: Tensor) -> Tensor:
        """The compiled kernel."""
        return cast(Tensor, torch.ops.vcc.silu_and_mul(x))

    def forward_triton(self, x: Tensor) -> Tensor:
        """The Triton kernel."""
        return cast(Tensor, _triton().silu_and_mul(x))


class GeluTanhAndMul(CustomOp):
    """`gelu(x[..., :d], tanh form) * x[..., d:]` for `x[..., 2d]`; plain torch everywhere."""

    op = "gelu_tanh_and_mul"

    def __init__(self, *, choice: OpChoice | None = None) -> None:
        super().__init__(choice)

    def forward_native(self, x: Tensor) -> Tensor:
        """Plain torch."""
        gate, up = x.chunk(2, dim=-1)
        return nn.functional.gelu(gate, approximate="tanh") * up


class RotaryEmbedding(CustomOp):
    """Rotary position embedding, halves paired (NeoX), possibly of only the first R values.

    Args:
        head_dim: values a head.

    forward(q [T, H*D], k [T, KV*D], cos [T, R/2], sin [T, R/2]) -> (q, k); cos and sin are fp32.
    """

    op = "rotary_embedding"

    def __init__(self, head_dim: int, *, choice: OpChoice | None = None) -> None:
        super().__init__(choice)
        self.head_dim = head_dim

    def forward_native(
        self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Plain torch; products in fp32, rounded once."""
        return self._rotate(q, cos, sin), self._rotate(k, cos, sin)

    def forward_cpu(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """The compiled kernel."""
        rotated = torch.ops.vcc.rotary_embedding(q, k, cos, sin, self.head_dim)
        return cast(tuple[Tensor, Tensor], rotated)

    def forward_triton(
        self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The Triton kernel."""
        rotated = _triton().rotary_embedding(q, k, cos, sin, self.head_dim)
        return cast(tuple[Tensor, Tensor], rotated)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = cos.shape[-1]
        heads = x.view(x.shape[0], x.shape[1] // self.head_dim, self.head_dim)
        low, high = heads[..., :half].float(), heads[..., half : 2 * half].float()
        cos, sin = cos[:, None, :], sin[:, None, :]
        turned = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(x.dtype)
        if 2 * half < self.head_dim:
            turned = torch.cat((turned, heads[..., 2 * half :]), dim=-1)
        return turned.flatten(-2)


def _triton() -> Any:
    """The kernels of `engine.ops.triton`: Triton is imported by a build that uses them only."""
    from vcc.engine.ops.triton import wrapped

    return wrapped
