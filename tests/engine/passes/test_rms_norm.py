"""RMS norms written out become one operator, and take in the addition before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fusions import Fused, Model, a_weight, fused
from support.toys import rows
from torch import Tensor

from vcc.engine.passes.add_rms_norm import FUSE_ADD_RMS_NORM
from vcc.engine.passes.rms_norm import FUSE_RMS_NORM

BF16 = torch.bfloat16


def llama(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def gemma(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * (1.0 + weight.float())).type_as(x)


def built_in(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    wide = x.float()
    scaled = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
    return (scaled * (0.0 + weight.float())).to(x.dtype)


def of_torch(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)


NORMS: dict[str, Callable[..., Tensor]] = {
    "llama": llama,
    "gemma": gemma,
    "built in": built_in,
    "torch's": of_torch,
}


def norm(model: Model, x: Tensor, *, width: int = 0, **more: Any) -> Fused:
    weight = a_weight(width or x.shape[-1], x.dtype)
    return fused(FUSE_RMS_NORM, model, {"x": x}, weight=weight, **more)


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_in_any_of_its_forms_is_one_operator(name: str, dtype: torch.dtype) -> None:
    found = norm(lambda m, x: NORMS[name](x, m.weight), rows(6, 8).to(dtype))
    assert found.calls == ("vcc::rms_norm.default",)
    assert found.proof.report.matches == 1
    assert found.proof.settled
    assert found.proof.error <= (1e-6 if dtype == torch.float32 else 2**-7)


@pytest.mark.parametrize("eps", [1e-3, 1e-5, 0.5])
def test_any_epsilon_fuses(eps: float) -> None:
    found = norm(lambda m, x: llama(x, m.weight, eps), rows(6, 8))
    assert found.fused == ["rms_norm"]
    assert found.proof.equal


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 70), st.sampled_from(sorted(NORMS)), st.floats(1e-6, 1.0))
def test_norms_of_drawn_widths_and_epsilons_are_equal(width: int, name: str, eps: float) -> None:
    found = norm(lambda m, x: NORMS[name](x * 3 + 1, m.weight, eps), rows(6, width))
    assert found.fused == ["rms_norm"]
    assert found.proof.error <= 1e-6


def test_what_it_saves_is_what_lay_between() -> None:
    saved = norm(lambda m, x: llama(x, m.weight), rows(6, 8)).proof.report.saved
    # square, mean, + eps, rsqrt, product, product with the weight: five of six launches
    assert saved.launches == 5
    assert saved.bytes == 2 * 4 * (2 * 6 * 8 + 3 * 6)


NEAR: dict[str, tuple[Model, int, str]] = {
    "another dimension": (
        lambda m, x: m.weight * (x * torch.rsqrt(x.pow(2).mean([0], keepdim=True) + 1e-6)),
        8,
        "a value is [0], not [-1]",
    ),
    "a step that somebody else reads": (
        lambda m, x: (
            n := x * torch.rsqrt((q := x.pow(2)).mean(-1, keepdim=True) + 1e-6),
            m.weight * n,
            q + 1,
        )[1:],
        8,
        "is also read by",
    ),
    "a weight of another size": (lambda m, x: llama(x[:, :1], m.weight), 8, "larger than"),
    "rows that lie apart": (
        lambda m, x: llama(x.unflatten(-1, (2, 4)).transpose(-1, -2), m.weight),
        2,
        "not dense in its last",
    ),
    "a write in between": (
        lambda m, x: (
            y := x * 3,
            r := torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6),
            y[0].add_(1),
            m.weight * (y * r),
        )[3],
        8,
        "writes in place between its calls",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_a_near_match_is_left_with_its_reason(name: str) -> None:
    model, width, reason = NEAR[name]
    found = fused(FUSE_RMS_NORM, model, {"x": rows(6, 8)}, weight=a_weight(width))
    assert found.proof.report.matches == 0
    assert found.proof.exact
    assert any(reason in said for said in found.proof.report.refused), found.proof.report.refused


def test_a_weight_of_another_dtype_is_a_near_match() -> None:
    found = fused(
        FUSE_RMS_NORM,
        lambda m, x: gemma(x, m.weight),
        {"x": rows(6, 8).to(BF16)},
        weight=a_weight(8),
    )
    assert found.fused == []
    assert any("weight is float32, where x is bfloat16" in r for r in found.proof.report.refused)


def added(model: Model, x: Tensor, y: Tensor) -> Fused:
    weight = a_weight(x.shape[-1], x.dtype)
    arguments = {"x": x, "y": y}
    return fused(FUSE_ADD_RMS_NORM, model, arguments, before=[FUSE_RMS_NORM], weight=weight)


def pair(width: int = 8, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return rows(6, width).to(dtype), rows(6, width).flip(0).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("eps", [1e-6, 1e-3])
def test_an_addition_goes_into_the_norm_of_the_sum(dtype: torch.dtype, eps: float) -> None:
    found = added(lambda m, x, y: (s := x + y, llama(s, m.weight, eps), s * 2)[1:], *pair(8, dtype))
    assert found.fused == ["fused_add_rms_norm"]
    assert found.proof.exact
    assert found.proof.settled
    assert found.proof.report.saved.launches == 1


def test_a_sum_that_is_read_before_the_norm_moves_the_call_up() -> None:
    found = added(lambda m, x, y: (s := x + y, t := s * 2, llama(s, m.weight), t)[2:], *pair())
    assert found.fused == ["fused_add_rms_norm"]
    assert found.proof.exact


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 70), st.booleans(), st.floats(1e-6, 1.0))
def test_sums_of_drawn_widths_are_equal(width: int, offset: bool, eps: float) -> None:
    form = gemma if offset else llama
    found = added(lambda m, x, y: (s := x + y, form(s, m.weight, eps), s)[1:], *pair(width))
    assert found.fused == ["fused_add_rms_norm"]
    assert found.proof.exact


LEFT: dict[str, tuple[Model, str]] = {
    "a broadcast addend": (lambda m, x, y: llama(x + y[:1], m.weight), "is broadcast by"),
    "a scaled addend": (
        lambda m, x, y: llama(torch.add(x, y, alpha=2), m.weight),
        "scales what it adds",
    ),
    "a number": (lambda m, x, y: (llama(x + 1, m.weight), y), "1 is no tensor of floats"),
    "an addend of another dtype": (
        lambda m, x, y: llama(x + y.to(BF16), m.weight),
        "is bfloat16, where",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_additions_stay_with_their_reason(name: str) -> None:
    model, reason = LEFT[name]
    found = added(model, *pair())
    assert found.fused == ["rms_norm"]
    assert any(reason in said for said in found.proof.report.refused), found.proof.report.refused
