"""The router of a mixture of experts as an operator layer."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from vcc.engine.ops import native_experts
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.custom_op import CustomOp


class TopkSoftmax(CustomOp):
    """The likeliest experts of each row: softmax in fp32, then the k largest, largest first.

    Args:
        top_k: experts of a row.
        renormalise: probabilities are those among the k alone.

    forward(logits [T, E]) -> (probabilities fp32 [T, k], ids int32 [T, k]).
    """

    op = "topk_softmax"
    operators = ("topk_softmax",)

    def __init__(self, top_k: int, renormalise: bool, *, choice: OpChoice | None = None) -> None:
        super().__init__(choice)
        self.top_k, self.renormalise = top_k, renormalise

    def forward_native(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Plain torch."""
        return native_experts.topk_softmax(logits, self.top_k, self.renormalise)

    def forward_kernel(self, ops: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
        """One pass over the row."""
        found = ops.topk_softmax(logits, self.top_k, self.renormalise)
        return cast(tuple[Tensor, Tensor], found)
