"""Gated activations written out become one operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fusions import Fused, Model, fused
from support.toys import rows
from torch import Tensor
from torch.nn.functional import gelu, relu, silu

from vcc.engine.config.types import CompilationConfig
from vcc.engine.passes.act_mul import FUSE_ACT_MUL
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.splits import COALESCE_SPLITS

FORMS: dict[str, tuple[Any, str]] = {
    "silu": (silu, "silu_and_mul"),
    "gelu by erf": (gelu, "gelu_and_mul"),
    "gelu by tanh": (lambda x: gelu(x, approximate="tanh"), "gelu_and_mul"),
}


def halves(act: Any, x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return act(gate) * up


def run(model: Model, x: Tensor, **more: Any) -> Fused:
    return fused(FUSE_ACT_MUL, model, {"x": x}, before=[COALESCE_SPLITS], **more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FORMS)
def test_an_activation_and_its_product_are_one_operator(name: str, dtype: torch.dtype) -> None:
    act, wanted = FORMS[name]
    found = run(lambda m, x: halves(act, x * 3), rows(6, 8).to(dtype))
    assert found.fused == [wanted]
    assert found.proof.settled
    assert found.proof.error <= (1e-6 if dtype == torch.float32 else 2**-7)
    assert found.proof.report.saved.launches == 1
    assert found.proof.report.saved.bytes == 2 * dtype.itemsize * 6 * 4


WAYS: dict[str, Model] = {
    "slices": lambda m, x: silu(x[..., :4]) * x[..., 4:],
    "a split": lambda m, x: (p := x.split(4, -1), silu(p[0]) * p[1])[1],
    "the product the other way": lambda m, x: (p := x.chunk(2, -1), p[1] * silu(p[0]))[1],
}


@pytest.mark.parametrize("name", WAYS)
def test_halves_may_be_cut_in_any_way(name: str) -> None:
    assert run(WAYS[name], rows(6, 8)).fused == ["silu_and_mul"]


@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 70), st.sampled_from(sorted(FORMS)))
def test_drawn_widths_are_equal(width: int, name: str) -> None:
    found = run(lambda m, x: halves(FORMS[name][0], x * 4), rows(6, 2 * width))
    assert found.fused == [FORMS[name][1]]
    assert found.proof.error <= 1e-6


LEFT: dict[str, tuple[Model, str]] = {
    "the second half is gated": (
        lambda m, x: (p := x.chunk(2, -1), silu(p[1]) * p[0])[1],
        "is item 1, not 0",
    ),
    "gate and up of two tensors": (lambda m, x: silu(x) * (x + 1), "is not an item of a call"),
    "unequal parts": (
        lambda m, x: (p := x.split([1, 7], -1), silu(p[0]) * p[1])[1],
        "makes no halves",
    ),
    "another dimension": (
        lambda m, x: (p := x.unflatten(-1, (2, 4)).chunk(2, 1), silu(p[0]) * p[1])[1],
        "does not halve the last",
    ),
    "an activation that others read": (
        lambda m, x: (p := x.chunk(2, -1), s := silu(p[0]), s * p[1], s + 1)[2:],
        "is also read by",
    ),
    "thirds": (
        lambda m, x: (p := x[:, :6].chunk(3, -1), silu(p[0]) * p[1])[1],
        "chunk is also read by getitem_2",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_near_match_is_left_with_its_reason(name: str) -> None:
    model, reason = LEFT[name]
    found = run(model, rows(6, 8))
    assert found.fused == []
    assert found.proof.exact
    assert any(reason in said for said in found.proof.report.refused), found.proof.report.refused


def test_another_activation_is_no_near_match() -> None:
    found = run(lambda m, x: halves(relu, x), rows(6, 8))
    assert (found.fused, found.proof.report.refused) == ([], ())


def test_an_activation_whose_op_is_switched_off_stays() -> None:
    context = PassContext(CompilationConfig(), ops=frozenset({"silu_and_mul"}))
    found = run(lambda m, x: halves(gelu, x), rows(6, 8), context=context)
    assert found.fused == []
    (reason,) = found.proof.report.refused
    assert "custom op gelu_tanh_and_mul is switched off" in reason
