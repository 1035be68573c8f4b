"""A projection whose weight is fp8: activations are quantised, the product is scaled.

The quantisation is written out in plain torch, in the form that the passes know: it goes into the
norm or the activation that makes the rows, where one does.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from vcc.engine.models.bindings import all_weights
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.layer_weights import Weight, layer_weights
from vcc.engine.models.linear import Linear
from vcc.engine.models.quant.spec import BLOCK, QuantSpec
from vcc.engine.models.quant.weights import by_row, static_rows
from vcc.engine.ops.choice import OpChoice

FP8 = torch.float8_e4m3fn
MOST = 448.0
"""Largest finite value of float8_e4m3fn."""

LEAST = 1e-10
"""Bound of a row's largest magnitude from below: a row of zeros has a scale too."""


def projection(
    spec: DecoderSpec, ops: OpChoice, path: str, inner: int, outer: int, bias: bool
) -> nn.Module:
    """A projection of the decoder, quantised or not.

    Args:
        spec: the decoder.
        ops: which operator back ends the layers use.
        path: the module's name in the decoder, as `layers.0.attn.qkv`.
        inner, outer: columns and rows of its weight.
        bias: whether it has one.
    """
    weight = weight_of(spec, f"{path}.weight") if spec.quant is not None else None
    if spec.quant is None or weight is None or not weight.fp8:
        return Linear(inner, outer, bias)
    parts = tuple(shape[0] for _, shape in weight.sources)
    return ScaledLinear(spec.quant, inner, parts, bias, on_gpu=ops.platform != "cpu")


def weight_of(spec: DecoderSpec, name: str) -> Weight | None:
    """The weight of a decoder's parameter, as `layers.0.attn.qkv.weight`."""
    _, _, rest = name.partition("layers.")
    number = rest.partition(".")[0]
    found = layer_weights(spec, int(number)) if number else all_weights(spec)
    weight = next((one for one in found if one.parameter == name), None)
    return weight if isinstance(weight, Weight) else None


class ScaledLinear(nn.Module):
    """Weights come from bindings, as in `Linear`.

    Args:
        quant: the scheme.
        inner: columns of the weight.
        parts: rows of the parts of the weight, which have scales of their own; of several parts
            the scale of each stands once a row.
        bias: whether there is one.
        on_gpu: the product is a Triton kernel instead of an operator.
    """

    own_dtypes = frozenset({"weight", "weight_scale", "input_scale"})
    """Parameters that are not in the model's dtype."""

    def __init__(
        self, quant: QuantSpec, inner: int, parts: tuple[int, ...], bias: bool, on_gpu: bool
    ) -> None:
        super().__init__()
        self.activations, self.parts, self.on_gpu = quant.activations, parts, on_gpu
        outer = sum(parts)
        shapes = {
            "tensor": (outer if by_row(quant, len(parts)) else 1,),
            "channel": (outer,),
            "block": (-(-outer // BLOCK), -(-inner // BLOCK)),
        }
        self.weight = parameter(outer, inner, dtype=FP8)
        self.weight_scale = parameter(*shapes[quant.weights], dtype=torch.float32)
        static, often = quant.activations == "static", static_rows(quant, len(parts))
        self.input_scale = parameter(often, dtype=torch.float32) if static else None
        self.bias = parameter(outer) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x [..., inner] -> [..., outer]."""
        values, scale = self._quantised(x)
        product = _product(self.on_gpu)
        made = product(
            values, self.weight, scale, self.weight_scale, self.bias, list(self.parts), x.dtype
        )
        return cast(Tensor, made)

    def _quantised(self, x: Tensor) -> tuple[Tensor, Tensor]:
        wide = x.float()
        if self.input_scale is not None:
            scale = self.input_scale[:1]  # the same number stands in it once or many times
            values = (wide / scale).clamp(-MOST, MOST).to(FP8)
            return values, self.input_scale if self.on_gpu else scale
        if self.activations == "token":
            scale = wide.abs().amax(-1, keepdim=True).clamp(min=LEAST) / MOST
            return (wide / scale).clamp(-MOST, MOST).to(FP8), scale
        blocks = wide.unflatten(-1, (-1, BLOCK))
        scale = blocks.abs().amax(-1, keepdim=True).clamp(min=LEAST) / MOST
        return (blocks / scale).clamp(-MOST, MOST).to(FP8).flatten(-2), scale.squeeze(-1)


def parameter(*shape: int, dtype: torch.dtype | None = None) -> nn.Parameter:
    """A parameter without values, which come from a binding."""
    return nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False)


def _product(on_gpu: bool) -> Any:
    """On a GPU the Triton kernel, which the planner makes a product of the step."""
    if not on_gpu:
        return torch.ops.vcc.scaled_linear
    from vcc.engine.ops.triton.wrapped_scaled import scaled_linear

    return scaled_linear
