"""Routers of experts become one operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fusions import Fused, Model, fused
from support.toys import rows
from torch import Tensor

from vcc.engine.passes.moe_router import FUSE_MOE_ROUTER

pytestmark = pytest.mark.filterwarnings("error:erase_node:UserWarning")

FP32 = torch.float32


def softmax(x: Tensor, k: int = 2) -> tuple[Tensor, Tensor]:
    found = torch.softmax(x, -1, dtype=FP32).topk(k, -1)
    return found.values, found.indices


def sigmoid(x: Tensor, k: int = 2) -> tuple[Tensor, Tensor]:
    found = torch.sigmoid(x.float()).topk(k, -1)
    return found.values, found.indices


def renormalised(values: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    return values / values.sum(-1, keepdim=True), ids


def in_place(values: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    values /= values.sum(-1, keepdim=True)
    return values, ids


def logits(width: int = 8, dtype: torch.dtype = FP32) -> Tensor:
    """Rows without ties."""
    return (rows(6, width) * 7).sin().to(dtype)


def run(model: Model, x: Tensor) -> Fused:
    return fused(FUSE_MOE_ROUTER, model, {"x": x})


FORMS: dict[str, tuple[Model, str]] = {
    "softmax": (lambda m, x: softmax(x), "topk_softmax"),
    "softmax, renormalised": (lambda m, x: renormalised(*softmax(x)), "topk_softmax"),
    "softmax, renormalised in place": (lambda m, x: in_place(*softmax(x)), "topk_softmax"),
    "sigmoid": (lambda m, x: sigmoid(x), "topk_sigmoid"),
    "sigmoid, renormalised": (lambda m, x: renormalised(*sigmoid(x)), "topk_sigmoid"),
}


@pytest.mark.parametrize("dtype", [FP32, torch.bfloat16])
@pytest.mark.parametrize("name", FORMS)
def test_a_router_in_any_of_its_forms_is_one_operator(name: str, dtype: torch.dtype) -> None:
    model, wanted = FORMS[name]
    found = run(model, logits(8, dtype))
    assert found.fused == [wanted]
    assert found.proof.settled
    assert found.proof.error <= 1e-6  # probabilities in fp32; ids are compared too
    assert found.proof.report.saved.launches >= 1


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(st.integers(2, 40), st.integers(1, 8), st.sampled_from(sorted(FORMS)))
def test_routers_of_drawn_sizes_are_equal(width: int, k: int, name: str) -> None:
    k = min(k, width)
    router = sigmoid if "sigmoid" in name else softmax
    after = in_place if "place" in name else renormalised
    found = run(lambda m, x: after(*router(x * 1.3, k)), logits(width))
    assert found.fused == [FORMS[name][1]]
    assert found.proof.error <= 1e-6


def test_what_follows_a_router_in_another_way_stays_behind_it() -> None:
    def model(m: Any, x: Tensor) -> Any:
        values, ids = softmax(x)
        return values / (values.sum(-1, keepdim=True) + 1e-20), ids

    found = run(model, logits())
    assert found.fused == ["topk_softmax"]
    assert "aten::div.Tensor" in found.calls
    assert found.proof.error <= 1e-6


LEFT: dict[str, tuple[Model, str]] = {
    "the smallest": (
        lambda m, x: torch.softmax(x, -1, dtype=FP32).topk(2, -1, largest=False)[0],
        "not of the k largest in order",
    ),
    "probabilities that others read": (
        lambda m, x: (p := torch.softmax(x, -1, dtype=FP32), p.topk(2, -1)[0], p.sum())[1:],
        "is also read by",
    ),
    "three dimensions": (
        lambda m, x: torch.softmax(x.unflatten(-1, (2, 4)), -1, dtype=FP32).topk(2, -1)[1],
        "does not run over the rows of a matrix",
    ),
    "another dimension": (
        lambda m, x: torch.softmax(x, 0, dtype=FP32).topk(2, -1)[0],
        "",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_near_match_is_left_with_its_reason(name: str) -> None:
    model, reason = LEFT[name]
    found = run(model, logits())
    assert found.fused == []
    assert found.proof.exact
    refused = found.proof.report.refused
    assert any(reason in one for one in refused) or not reason, refused


def test_probabilities_in_bf16_stay() -> None:
    found = run(lambda m, x: torch.softmax(x, -1).topk(2, -1)[0], logits(8, torch.bfloat16))
    assert found.fused == []
    assert any("gives torch.bfloat16" in one for one in found.proof.report.refused)
