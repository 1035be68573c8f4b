"""Feed-forward layers of the built-in decoder: gated, and experts of which a router takes some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.expert_spec import ExpertSpec
from vcc.engine.models.linear import Linear
from vcc.engine.models.quant.expert_layer import ScaledExperts
from vcc.engine.models.quant.linear import projection, weight_of
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.layers import CustomOp, GeluTanhAndMul, SiluAndMul

ACTIVATION_LAYERS: Mapping[str, type[CustomOp]] = {
    "silu": SiluAndMul,
    "gelu_tanh": GeluTanhAndMul,
}


class Mlp(nn.Module):
    """Gated feed-forward layer with gate and up projections fused."""

    def __init__(self, spec: DecoderSpec, ops: OpChoice, path: str, width: int, bias: bool) -> None:
        super().__init__()
        self.gate_up = projection(spec, ops, f"{path}.gate_up", spec.hidden, 2 * width, bias)
        self.act = ACTIVATION_LAYERS[spec.activation](choice=ops)
        self.down = projection(spec, ops, f"{path}.down", width, spec.hidden, bias)

    def forward(self, x: Tensor) -> Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return cast(Tensor, self.down(self.act(self.gate_up(x))))


class Experts(nn.Module):
    """The stacked weights of all experts of a layer."""

    def __init__(self, spec: DecoderSpec, experts: ExpertSpec) -> None:
        super().__init__()
        shape = (experts.count, 2 * experts.width, spec.hidden)
        self.gate_up = nn.Parameter(torch.empty(shape), requires_grad=False)
        shape = (experts.count, spec.hidden, experts.width)
        self.down = nn.Parameter(torch.empty(shape), requires_grad=False)


def stacked_experts(
    spec: DecoderSpec, experts: ExpertSpec, path: str, *, on_gpu: bool
) -> Experts | ScaledExperts:
    """The experts of the layer at this path of the decoder, quantised or not."""
    stored = weight_of(spec, f"{path}.experts.gate_up") if spec.quant is not None else None
    if spec.quant is None or stored is None or not stored.fp8:
        return Experts(spec, experts)
    return ScaledExperts(spec.quant, experts, spec.hidden, on_gpu)


class SparseMlp(nn.Module):
    """Each token's likeliest experts, and one that every token has where the model has such.

    Routing and experts are operators whatever the choice says: plain torch has shapes that depend
    on data, or multiplies with a copy of the weights for each token.
    """

    def __init__(self, spec: DecoderSpec, experts: ExpertSpec, path: str, ops: OpChoice) -> None:
        super().__init__()
        shared = experts.shared
        self.top_k, self.renormalise = experts.top_k, experts.renormalise
        self.on_gpu = ops.platform != "cpu"
        self.router = Linear(spec.hidden, experts.count, bias=False)
        self.experts = stacked_experts(spec, experts, path, on_gpu=self.on_gpu)
        self.shared = Mlp(spec, ops, f"{path}.shared", shared, bias=False) if shared else None
        self.shared_gate = Linear(spec.hidden, 1, bias=False) if experts.shared else None

    def forward(self, x: Tensor) -> Tensor:
        """x [T, hidden] -> [T, hidden]."""
        ops = expert_kernels(self.on_gpu)
        weights, ids = ops.topk_softmax(self.router(x), self.top_k, self.renormalise)
        if isinstance(self.experts, ScaledExperts):
            found = self.experts(x, weights, ids)
        else:
            found = ops.moe_experts(x, self.experts.gate_up, self.experts.down, weights, ids)
        if self.shared is None or self.shared_gate is None:
            return cast(Tensor, found)
        return cast(Tensor, found + torch.sigmoid(self.shared_gate(x)) * self.shared(x))


def feed_forward(spec: DecoderSpec, index: int, ops: OpChoice) -> nn.Module:
    """The feed-forward layer of a decoder layer."""
    if spec.experts is not None and spec.is_sparse(index):
        return SparseMlp(spec, spec.experts, f"layers.{index}.mlp", ops)
    return Mlp(spec, ops, f"layers.{index}.mlp", spec.intermediate, spec.mlp_bias)


def expert_kernels(on_gpu: bool) -> Any:
    """On a GPU the Triton kernels, each a launch of the piece; Triton is imported by a build."""
    if not on_gpu:
        return torch.ops.vcc
    import vcc.engine.ops.triton.wrapped_experts as kernels

    return kernels
