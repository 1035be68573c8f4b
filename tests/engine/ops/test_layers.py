"""Operator layers: forwards agree, replacement by name, no larger errors than transformers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vcc.cache.errors import UsageError
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.layers import (
    CustomOp,
    GeluTanhAndMul,
    RMSNorm,
    RotaryEmbedding,
    SiluAndMul,
    TopkSoftmax,
)

ALL = OpChoice(frozenset({"rms_norm", "silu_and_mul", "gelu_tanh_and_mul", "rotary_embedding"}))
DTYPES = [torch.float32, torch.bfloat16]


class Doubled(RMSNorm):
    """An out-of-tree norm."""

    def forward_native(self, x: Tensor, residual: Tensor | None = None) -> Any:
        return 2 * x

    def forward_cpu(self, x: Tensor, residual: Tensor | None = None) -> Any:
        return 3 * x


def test_M9_a_class_registered_for_a_name_is_built_in_its_place() -> None:
    x = torch.randn(2, 8)
    layer = RMSNorm(8, 1e-6, choice=OpChoice().replacing("RMSNorm", Doubled))
    assert type(layer) is Doubled
    assert torch.equal(layer(x), 2 * x)
    enabled = RMSNorm(8, 1e-6, choice=ALL.replacing("RMSNorm", Doubled))
    assert torch.equal(enabled(x), 3 * x)
    assert type(RMSNorm(8)) is RMSNorm


def test_a_replacement_must_be_a_subclass() -> None:
    with pytest.raises(UsageError, match="Linear is not a subclass of RMSNorm"):
        RMSNorm(8, choice=OpChoice().replacing("RMSNorm", nn.Linear))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_norm_forwards_agree(ops: Any, offset: float, dtype: torch.dtype) -> None:
    native, kernel = RMSNorm(64, 1e-5, offset), RMSNorm(64, 1e-5, offset, choice=ALL)
    assert (native.method, kernel.method) == ("forward_native", "forward_cpu")
    for layer in (native, kernel):
        layer.to(dtype)
    kernel.weight.copy_(native.weight.copy_(torch.randn(64)))
    x, residual = torch.randn(5, 64).to(dtype), torch.randn(5, 64).to(dtype)
    _agree(native(x), kernel(x), dtype)
    (a, sum_a), (b, sum_b) = native(x, residual), kernel(x, residual)
    _agree(a, b, dtype)
    assert torch.equal(sum_a, sum_b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_forwards_agree(ops: Any, dtype: torch.dtype) -> None:
    x = torch.randn(5, 64).to(dtype)
    _agree(SiluAndMul()(x), SiluAndMul(choice=ALL)(x), dtype)
    angles = torch.randn(5, 4)
    arguments = (x, x[:, :32], angles.cos(), angles.sin())
    for a, b in zip(
        RotaryEmbedding(16)(*arguments), RotaryEmbedding(16, choice=ALL)(*arguments), strict=True
    ):
        _agree(a, b, dtype)


@pytest.mark.parametrize("renormalise", [True, False])
def test_router_forwards_agree(ops: Any, renormalise: bool) -> None:
    logits, on = torch.randn(9, 12), OpChoice(frozenset({"topk_softmax"}))
    native, kernel = TopkSoftmax(4, renormalise), TopkSoftmax(4, renormalise, choice=on)
    assert (native.method, kernel.method) == ("forward_native", "forward_cpu")
    (a, first), (b, second) = native(logits), kernel(logits)
    _agree(a, b, torch.float32)
    assert torch.equal(first, second)


def _agree(a: Tensor, b: Tensor, dtype: torch.dtype) -> None:
    assert a.dtype == b.dtype == dtype
    tolerance = 2.0**-6 if dtype == torch.bfloat16 else 1e-5  # one or two roundings apart
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def test_native_norms_err_no_more_than_transformers_in_bf16() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama").LlamaRMSNorm(64, 1e-5)
    gemma = pytest.importorskip("transformers.models.gemma2.modeling_gemma2").Gemma2RMSNorm(64)
    x = torch.randn(200, 64).bfloat16()
    for theirs, ours in ((llama, RMSNorm(64, 1e-5)), (gemma, RMSNorm(64, 1e-6, 1.0))):
        theirs.weight.data.copy_(torch.randn(64).bfloat16().float())
        ours.weight.copy_(theirs.weight)
        reference = theirs(x.float())
        torch.testing.assert_close(ours(x.float()), reference, atol=1e-5, rtol=1e-5)
        theirs.bfloat16(), ours.bfloat16()
        errors = [(norm(x).float() - reference).abs() for norm in (ours, theirs)]
        assert errors[0].square().mean() <= errors[1].square().mean()
        assert errors[0].max() <= errors[1].max()


def test_gelu_is_the_tanh_form(ops: Any) -> None:
    x = torch.randn(3, 16)
    want = nn.functional.gelu(x[:, :8], approximate="tanh") * x[:, 8:]
    assert torch.equal(GeluTanhAndMul()(x), want)
    torch.testing.assert_close(GeluTanhAndMul(choice=ALL)(x), want)


def test_layers_copy_and_export(ops: Any) -> None:
    class Model(nn.Module):
        def __init__(self, choice: OpChoice) -> None:
            super().__init__()
            self.norm, self.act = RMSNorm(32, choice=choice), SiluAndMul(choice=choice)

        def forward(self, x: Tensor) -> Tensor:
            return self.act(self.norm(x))

    x = torch.randn(3, 32)
    for choice in (OpChoice(), ALL):
        model = copy.deepcopy(Model(choice))
        dims = {"x": {0: torch.export.Dim("t", min=1, max=64)}}
        program = torch.export.export(model, (x,), dynamic_shapes=dims, strict=False)
        called = {str(n.target) for n in program.graph.nodes}
        assert ("vcc.rms_norm.default" in called) == (choice is ALL)
        for rows in (1, 2, 64):
            other = torch.randn(rows, 32)
            torch.testing.assert_close(program.module()(other), model(other))


def test_a_layer_without_any_forward_says_which() -> None:
    class Empty(CustomOp):
        op = "empty"

    with pytest.raises(NotImplementedError, match="Empty"):
        Empty()()
