"""Fusions that no level switches on: norm with projection, attention with fp8, sums over ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from support.fusions import Fused, Model, a_weight, fused, on, switched_on
from support.sources import ROOT
from support.toys import rows, traced
from torch import Tensor

from vcc.engine.config.modes import GraphMode, Platform
from vcc.engine.config.resolve import PlatformFacts, resolve
from vcc.engine.config.target import Target
from vcc.engine.config.types import CompilationConfig, PassConfig
from vcc.engine.passes.all_reduce_norm import FUSE_ALL_REDUCE_NORM
from vcc.engine.passes.apply import PASSES, apply
from vcc.engine.passes.attention_quant import FUSE_ATTENTION_QUANT
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.norm_linear import FUSE_NORM_LINEAR

vcc, linear = torch.ops.vcc, torch.nn.functional.linear
FP8 = torch.float8_e4m3fn


def projected(model: Model, dtype: torch.dtype = torch.float32) -> Fused:
    weights = {
        "n": a_weight(8, dtype),
        "w": torch.nn.Parameter(rows(5, 8).to(dtype), requires_grad=False),
        "b": a_weight(5, dtype),
    }
    return fused(FUSE_NORM_LINEAR, model, {"x": (rows(6, 8) * 3).to(dtype)}, **weights)


PROJECTIONS: dict[str, Model] = {
    "plain": lambda m, x: linear(vcc.rms_norm(x, m.n, 1e-6), m.w),
    "with a bias": lambda m, x: linear(vcc.rms_norm(x, m.n, 1e-3, 1.0), m.w, m.b),
    "behind an addition": lambda m, x: (
        p := vcc.fused_add_rms_norm(x, x.flip(1), m.n, 1e-6), linear(p[0], m.w), p[1] * 2
    )[1:],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PROJECTIONS)
def test_a_norm_goes_into_the_projection_that_alone_reads_it(name: str, dtype: torch.dtype) -> None:
    found = projected(PROJECTIONS[name], dtype)
    assert found.fused == ["rms_norm_linear"]
    assert found.proof.settled
    assert found.proof.error <= (1e-6 if dtype == torch.float32 else 2**-6)
    assert found.proof.report.saved.bytes == 2 * dtype.itemsize * 6 * 8


def test_a_norm_that_two_projections_read_stays() -> None:
    found = projected(
        lambda m, x: (n := vcc.rms_norm(x, m.n, 1e-6), linear(n, m.w), n @ m.w.t())[1:]
    )
    assert found.fused == ["rms_norm"]
    assert any("is also read by" in one for one in found.proof.report.refused)


def test_a_projection_in_another_dtype_stays() -> None:
    model = lambda m, x: linear(vcc.rms_norm(x, m.n, 1e-6).to(torch.bfloat16), m.v)  # noqa: E731
    weight = torch.nn.Parameter(rows(5, 8).to(torch.bfloat16), requires_grad=False)
    found = fused(FUSE_NORM_LINEAR, model, {"x": rows(6, 8)}, n=a_weight(8), v=weight)
    assert found.fused == ["rms_norm"]


def attended(model: Model) -> Fused:
    arguments = {
        "q": rows(6, 32),
        "cache": rows(2 * 4 * 16, 16).view(2, 4, 16, 1, 16),
        "table": torch.tensor([[0, 1]], dtype=torch.int32),
        "lens": torch.tensor([6], dtype=torch.int32),
        "starts": torch.tensor([0, 6], dtype=torch.int32),
    }
    return on(traced(model, arguments, {}, s=torch.tensor(0.01)), FUSE_ATTENTION_QUANT)


def attention(q: Tensor, *rest: Tensor) -> Tensor:
    out = torch.empty_like(q)
    vcc.paged_attention(q, *rest, out, 0.25)
    return out


def static(y: Tensor, scale: Tensor) -> Tensor:
    return (y.float() / scale).clamp(-448, 448).to(FP8)


def test_attention_writes_fp8_where_that_is_all_that_is_read() -> None:
    found = attended(
        lambda m, q, cache, table, lens, starts: static(
            attention(q, cache, table, lens, starts), m.s
        )
    )
    assert found.fused == ["paged_attention_quant"]
    assert found.proof.exact
    assert found.proof.settled
    assert found.proof.report.saved.launches >= 2


ATTENTIONS: dict[str, tuple[Model, str]] = {
    "a result that others read": (
        lambda m, q, *rest: (o := attention(q, *rest), static(o, m.s), o * 2)[1:],
        "out is also read by",
    ),
    "a scale of the result": (
        lambda m, q, *rest: (
            o := attention(q, *rest), static(o, o.abs().amax().clamp(min=1e-6) / 448)
        )[1],
        "",
    ),
    "no attention": (
        lambda m, q, *rest: static(torch.empty_like(q).fill_(2.0), m.s),
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENTIONS)
def test_other_results_of_attention_stay_with_their_reason(name: str) -> None:
    model, reason = ATTENTIONS[name]

    def with_names(m: Any, q: Any, cache: Any, table: Any, lens: Any, starts: Any) -> Any:
        return model(m, q, cache, table, lens, starts)

    found = attended(with_names)
    assert found.proof.report.matches == 0
    refused = found.proof.report.refused
    assert refused
    assert any(reason.removeprefix("out ") in one for one in refused), refused


def test_a_build_that_rewrites_across_attention_is_not_cut_there() -> None:
    """Row M5: no splitting op, and full graphs alone."""
    facts = PlatformFacts(Platform.CPU, 8, 64)
    asked = CompilationConfig(pass_config=PassConfig(fuse_attention_quant=True))
    config = resolve(asked, facts).config
    assert (config.splitting_ops, config.cuda_graph_mode) == ((), GraphMode.FULL)
    assert resolve(CompilationConfig(), facts).config.splitting_ops


def test_attention_with_fp8_is_for_the_cpu() -> None:
    """Elsewhere a graph that is not cut at attention cannot be planned."""
    graph = traced(lambda m, x: x * 2, {"x": rows()})
    context = switched_on(FUSE_ATTENTION_QUANT, PassContext(target=Target.parse("sm_90")))
    (report,) = apply(graph, [FUSE_ATTENTION_QUANT], context).reports
    assert report.skipped == "target sm_90 is not cpu"


OFF = ("fuse_all_reduce_norm", "fuse_attention_quant", "fuse_norm_linear")


@pytest.mark.parametrize("name", OFF)
def test_no_level_switches_it_on(name: str) -> None:
    graph = traced(lambda m, x: x * 2, {"x": rows()})
    one = next(one for one in PASSES if one.name == name)
    (report,) = apply(graph, [one]).reports
    assert report.skipped.endswith(("no level switches it on", "does not exist here"))
    known = PlatformFacts(Platform.CPU, 8, 64, known_ops=("rms_norm",))
    resolved = resolve(CompilationConfig(custom_ops=("all",)), known).config
    assert getattr(resolved.pass_config, name) is False


def test_sums_over_ranks_are_refused_until_their_kernel_exists() -> None:
    graph = traced(lambda m, x: x * 2, {"x": rows()})
    context = switched_on(FUSE_ALL_REDUCE_NORM)
    (report,) = apply(graph, [FUSE_ALL_REDUCE_NORM], context).reports
    assert report.skipped == "operator vcc::all_reduce_rms_norm does not exist here"


def test_sums_over_ranks_fuse_in_steps_of_few_tokens_only() -> None:
    """Row F7, with an operator that stands in for the missing one: a process of its own."""
    command = [sys.executable, "-m", "support.all_reduce"]
    done = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["2 ranks, 512 tokens"] == [1, ""]
    assert found["2 ranks, 513 tokens"] == [
        0, "steps of up to 513 tokens are above its limit of 512"
    ]  # fmt: skip
    assert found["1 rank, 512 tokens"][0] == 0
    assert found["equal"]
