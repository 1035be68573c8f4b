"""Quantisation to fp8 goes into the norm or activation before it, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fusions import Fused, Model, a_weight, fused, operators, switched_on
from support.toys import rows, traced
from torch import Tensor

from vcc.engine.config.target import Target
from vcc.engine.ops.register import load_ops
from vcc.engine.passes.act_quant import FUSE_ACT_QUANT
from vcc.engine.passes.apply import apply
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.noops import ELIMINATE_NOOPS
from vcc.engine.passes.norm_quant import FUSE_NORM_QUANT
from vcc.engine.passes.quant_forms import launched_on

load_ops()
vcc, FP8 = torch.ops.vcc, torch.float8_e4m3fn


def static(y: Tensor, scale: Tensor) -> Tensor:
    return (y.float() / scale).clamp(-448, 448).to(FP8)


def by_row(y: Tensor) -> tuple[Tensor, Tensor]:
    wide = y.float()
    scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return (wide / scale).clamp(-448.0, 448.0).to(FP8), scale


def unbounded(y: Tensor) -> tuple[Tensor, Tensor]:
    wide = y.float()
    scale = wide.abs().amax(-1, keepdim=True) / 448
    return (wide / scale).clamp(-448.0, 448.0).to(FP8), scale


def by_block(y: Tensor, block: int = 4) -> tuple[Tensor, Tensor]:
    wide = y.float().unflatten(-1, (-1, block))
    scale = wide.abs().amax(-1, keepdim=True).clamp_min(1e-4) / 448.0
    return (wide / scale).clamp(-448.0, 448.0).to(FP8).flatten(-2), scale.squeeze(-1)


def norm(m: Any, x: Tensor) -> Tensor:
    return vcc.rms_norm(x, m.weight, 1e-5)


def add_norm(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return vcc.fused_add_rms_norm(x, x.flip(1), m.weight, 1e-3, 1.0)


PRODUCERS: dict[str, tuple[Any, Callable[[Any, Tensor], Tensor], str]] = {
    "norm": (FUSE_NORM_QUANT, norm, "rms_norm_quant"),
    "silu": (FUSE_ACT_QUANT, lambda m, x: vcc.silu_and_mul(x), "silu_and_mul_quant"),
    "gelu": (FUSE_ACT_QUANT, lambda m, x: vcc.gelu_and_mul(x, True), "gelu_and_mul_quant"),
}
MOVING: dict[str, Callable[..., Any]] = {
    "row": by_row, "row without a bound": unbounded, "block": by_block
}  # fmt: skip


def run(one: Any, model: Model, x: Tensor, **more: Any) -> Fused:
    return fused(
        one,
        model,
        {"x": x},
        weight=a_weight(x.shape[-1], x.dtype),
        scale=torch.tensor(0.02),
        **more,
    )


def inputs(width: int = 16, dtype: torch.dtype = torch.float32) -> Tensor:
    return (rows(6, width) * 5 - 1).to(dtype)


DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PRODUCERS)
def test_static_quantisation_is_part_of_its_producer(name: str, dtype: torch.dtype) -> None:
    one, producer, wanted = PRODUCERS[name]
    found = run(one, lambda m, x: static(producer(m, x), m.scale), inputs(16, dtype))
    assert found.calls == (f"vcc::{wanted}.default",)
    assert found.proof.exact
    assert found.proof.settled
    assert found.proof.report.saved.launches == (4 if dtype != torch.float32 else 3)
    assert found.proof.report.saved.bytes > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("moving", MOVING)
@pytest.mark.parametrize("name", PRODUCERS)
def test_dynamic_quantisation_is_part_of_its_producer(
    name: str, moving: str, dtype: torch.dtype
) -> None:
    one, producer, wanted = PRODUCERS[name]
    found = run(one, lambda m, x: MOVING[moving](producer(m, x)), inputs(16, dtype))
    assert found.fused == [f"{wanted}_dynamic"]
    assert found.proof.exact
    assert found.proof.settled


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("moving", ["static", *MOVING])
def test_the_sum_of_a_fused_addition_stays_for_its_readers(moving: str, dtype: torch.dtype) -> None:
    def model(m: Any, x: Tensor) -> Any:
        y, total = add_norm(m, x)
        early = total * 2
        quantised = static(y, m.scale) if moving == "static" else MOVING[moving](y)
        return quantised, total, early

    found = run(FUSE_NORM_QUANT, model, inputs(16, dtype))
    suffix = "" if moving == "static" else "_dynamic"
    assert found.fused == [f"fused_add_rms_norm_quant{suffix}"]
    assert found.proof.exact


def test_every_pair_of_norm_and_quantisation_becomes_one_operator() -> None:
    """Row F6: eps 1e-5, one fused operator for each pair and nothing else."""

    def model(m: Any, x: Tensor) -> Any:
        first = static(norm(m, x), m.scale)
        return first, static(norm(m, first.float()), m.scale)

    found = run(FUSE_NORM_QUANT, model, inputs())
    assert found.fused == ["rms_norm_quant"] * 2
    assert found.proof.report.matches == 2
    assert found.proof.exact


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 9), st.sampled_from(sorted(MOVING)), st.sampled_from(sorted(PRODUCERS)))
def test_drawn_widths_are_equal(quarter: int, moving: str, name: str) -> None:
    one, producer, wanted = PRODUCERS[name]
    found = run(one, lambda m, x: MOVING[moving](producer(m, x)), inputs(8 * quarter))
    assert found.fused == [f"{wanted}_dynamic"]
    assert found.proof.exact


LEFT: dict[str, tuple[Model, str]] = {
    "a product with the reciprocal": (
        lambda m, x: (norm(m, x) * m.scale.reciprocal()).clamp(-448, 448).to(FP8),
        "where aten::div.Tensor is wanted",
    ),
    "the norm is read otherwise too": (
        lambda m, x: (y := norm(m, x), static(y, m.scale), y * 2)[1:],
        "is also read by",
    ),
    "another range": (
        lambda m, x: (norm(m, x) / m.scale).clamp(-240, 240).to(FP8),
        "a value is -240, not -448.0",
    ),
    "a scale of each column": (
        lambda m, x: static(norm(m, x), m.weight),
        "is not one scale for all values",
    ),
    "a scale that comes of the norm's own sum": (
        lambda m, x: (p := add_norm(m, x), static(p[0], p[1].abs().amax().clamp(min=1.0)))[1],
        "is made after",
    ),
    "a scale with a limit above": (
        lambda m, x: (
            y := norm(m, x),
            s := y.abs().amax(-1, keepdim=True).clamp(1e-6, 9.0) / 448,
            (y / s).clamp(-448.0, 448.0).to(FP8),
        )[2],
        "bounds the scale from above",
    ),
    "blocks across rows": (
        lambda m, x: (
            y := norm(m, x).view(-1, 2, x.shape[1]).flatten(1).view(-1, 8, 4),
            s := y.abs().amax(-1, keepdim=True) / 448,
            (y / s).clamp(-448.0, 448.0).to(FP8),
        )[2],
        "",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_near_match_is_left_with_its_reason(name: str) -> None:
    model, reason = LEFT[name]
    x = inputs() if "across" not in name else inputs()[:4]
    found = run(FUSE_NORM_QUANT, model, x)
    assert not any("quant" in one for one in found.fused)
    assert found.proof.exact
    said = found.proof.report.refused
    assert any(reason in one for one in said) or not reason, said


def test_a_quotient_that_is_rounded_is_a_near_match() -> None:
    model = lambda m, x: (norm(m, x) / m.scale).clamp(-448, 448).to(FP8)  # noqa: E731
    found = run(FUSE_NORM_QUANT, model, inputs(16, torch.bfloat16))
    assert found.fused == ["rms_norm"]
    assert any("is rounded to" in one for one in found.proof.report.refused)


def test_pairs_in_fp16_become_one_operator_each() -> None:
    """Row F6 in its dtype, which has no CPU kernel: the graph is looked at, not run."""

    def model(m: Any, x: Tensor) -> Any:
        first = static(norm(m, x), m.scale)
        return first, static(norm(m, x * 2), m.scale)

    x, weight = inputs(16, torch.float16), a_weight(16, torch.float16)
    graph = traced(model, {"x": x}, {"x": {0: "T"}}, weight=weight, scale=torch.tensor(0.02))
    context = switched_on(FUSE_NORM_QUANT)
    apply(graph, [ELIMINATE_NOOPS], context)
    (report,) = apply(graph, [FUSE_NORM_QUANT], context).reports
    assert report.matches == 2
    assert [one for one in operators(graph) if one.startswith("vcc::")] == [
        "vcc::rms_norm_quant.default"
    ] * 2


@pytest.mark.parametrize(("target", "runs"), [("sm_86", False), ("sm_89", True), ("sm_90", True)])
@pytest.mark.parametrize("one", [FUSE_NORM_QUANT, FUSE_ACT_QUANT], ids=lambda one: one.name)
def test_devices_without_fp8_are_left_out(one: Any, target: str, runs: bool) -> None:
    why = one.gate.refusal(PassContext(target=Target.parse(target)))
    assert (why == "") is runs
    assert runs or f"target {target} is none of cpu, sm_89" in why


def test_scales_that_a_launch_reads_as_they_lie_are_not_moved() -> None:
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation

    graph = torch.fx.Graph()
    read, turned = graph.placeholder("read"), graph.placeholder("turned")
    flat = graph.call_function(torch.ops.aten.squeeze.dim, (read, -1))
    other = graph.call_function(torch.ops.aten.t.default, (turned,))
    for scale in (flat, other):
        graph.call_function(triton_kernel_wrapper_mutation, kwargs={"kwargs": {"scale": scale}})
    assert launched_on(read)
    assert not launched_on(turned)
