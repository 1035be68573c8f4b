"""The experts of a layer with fp8 weights: rows are quantised inside the operator."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from vcc.engine.models.expert_spec import ExpertSpec
from vcc.engine.models.quant.linear import FP8, LEAST, parameter
from vcc.engine.models.quant.spec import BLOCK, QuantSpec


class ScaledExperts(nn.Module):
    """The stacked weights of all experts of a layer, and their scales.

    Args:
        quant: the scheme.
        experts: how many there are, and how wide.
        hidden: width of a row.
        on_gpu: the products are Triton kernels instead of an operator.
    """

    own_dtypes = frozenset(
        {
            *("gate_up", "gate_up_scale", "gate_up_input_scale"),
            *("down", "down_scale", "down_input_scale"),
        }
    )
    """Parameters that are not in the model's dtype."""

    def __init__(self, quant: QuantSpec, experts: ExpertSpec, hidden: int, on_gpu: bool) -> None:
        super().__init__()
        self.on_gpu = on_gpu
        count, width, static = experts.count, experts.width, quant.activations == "static"
        self.gate_up = parameter(count, 2 * width, hidden, dtype=FP8)
        self.gate_up_scale = _scales(quant, count, 2, 2 * width, hidden)
        self.gate_up_input_scale = parameter(count, dtype=torch.float32) if static else None
        self.down = parameter(count, hidden, width, dtype=FP8)
        self.down_scale = _scales(quant, count, 1, hidden, width)
        self.down_input_scale = parameter(count, dtype=torch.float32) if static else None

    def forward(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """x [T, hidden], weights and ids [T, k] -> [T, hidden]."""
        scales = (self.gate_up_scale, self.down_scale)
        given = (self.gate_up_input_scale, self.down_input_scale)
        run = _kernels(self.on_gpu)
        made = run(x, self.gate_up, self.down, *scales, *given, weights, ids, LEAST)
        return cast(Tensor, made)


def _scales(quant: QuantSpec, count: int, parts: int, rows: int, inner: int) -> nn.Parameter:
    shapes = {
        "tensor": (parts,),
        "channel": (rows,),
        "block": (-(-rows // BLOCK), -(-inner // BLOCK)),
    }
    return parameter(count, *shapes[quant.weights], dtype=torch.float32)


def _kernels(on_gpu: bool) -> Any:
    """On a GPU Triton kernels, each a launch of the piece; Triton is imported by a build."""
    if not on_gpu:
        return torch.ops.vcc.scaled_experts
    from vcc.engine.ops.triton.wrapped_scaled_experts import scaled_experts

    return scaled_experts
