"""vcc::scaled_experts: compiled kernels and plain torch against one expert after another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.scaled_expert_cases import FORMS, Sizes, drawn, held
from torch import Tensor

from vcc.engine.ops.native_scaled_experts import scaled_experts as plain

DTYPES = [torch.float32, torch.bfloat16]
SIZES: tuple[Sizes, ...] = ((0, 4, 2, 128, 128), (1, 64, 8, 128, 128), (5, 3, 3, 256, 128))
MANY: Sizes = (270, 5, 2, 128, 128)
ODD: tuple[Sizes, ...] = ((3, 3, 3, 33, 1), (77, 4, 2, 65, 23))
"""Nothing here is a multiple of a vector."""


def sizes_of(form: str) -> tuple[Sizes, ...]:
    return (*SIZES, MANY) if form == "block" else (*SIZES, *ODD)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_compiled_kernels_are_one_expert_after_another(
    compiled: Any, level: int, form: str, dtype: torch.dtype
) -> None:
    for sizes in sizes_of(form):
        call = drawn(form, sizes, dtype)
        held(compiled.scaled_experts(*call.arguments()), call)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("form", FORMS)
def test_plain_torch_is_one_expert_after_another(form: str, dtype: torch.dtype) -> None:
    for sizes in sizes_of(form):
        call = drawn(form, sizes, dtype)
        held(plain(*call.arguments()), call)


@pytest.mark.parametrize("used", [1, 2])
def test_all_rows_may_go_to_few_experts(compiled: Any, level: int, used: int) -> None:
    """More pairs of one expert than are in memory at a time."""
    call = drawn("channel-token", (600, 16, used, 48, 24), torch.float32, used)
    for run in (compiled.scaled_experts, plain):
        held(run(*call.arguments()), call)


@pytest.mark.parametrize("form", ["tensor-static", "channel-token", "block"])
def test_a_nan_stays_in_its_row_and_zeros_stay_zeros(compiled: Any, form: str) -> None:
    call = drawn(form, (20, 4, 2, 128, 128), torch.float32)
    call.x[7], call.x[3] = float("nan"), 0.0
    for run in (compiled.scaled_experts, plain):
        found = run(*call.arguments())
        assert found.isnan().any(1).nonzero().flatten().tolist() == [7]
        assert bool((found[3] == 0).all())


def test_rows_may_be_strided(compiled: Any) -> None:
    call = drawn("block", (9, 4, 2, 128, 128), torch.float32)
    wide = replace(call, x=torch.cat((call.x, call.x), dim=1)[:, :128])
    want = compiled.scaled_experts(*call.arguments())
    assert torch.equal(compiled.scaled_experts(*wide.arguments()), want)


@pytest.mark.parametrize("name", ["gate_up_scale", "down_scale", "x_scale", "inner_scale"])
def test_every_scale_of_every_expert_matters(compiled: Any, name: str) -> None:
    """A scale that is three times as large shows in the rows of its expert and in no other."""
    call = drawn("tensor-static", (40, 6, 2, 48, 24), torch.float32)
    whole = compiled.scaled_experts(*call.arguments())
    scale = getattr(call, name)
    for expert in range(5):
        changed = scale.clone()
        changed[expert] *= 3
        found = compiled.scaled_experts(*replace(call, **{name: changed}).arguments())
        differs = (found != whole).any(1)
        assert torch.equal(differs, (call.ids == expert).any(1))


def _fp8(*shape: int) -> Tensor:
    return torch.ones(shape).to(torch.float8_e4m3fn)


ONES = torch.ones
BAD: list[tuple[str, dict[str, Any]]] = [
    ("x must be float32 or bfloat16", {"x": ONES(4, 128).half()}),
    ("gate_up must be Float8_e4m3fn", {"gate_up": ONES(5, 256, 128)}),
    ("down must be Float8_e4m3fn", {"down": ONES(5, 128, 128).bfloat16()}),
    ("gate_up must have size 256 in dimension 1", {"gate_up": _fp8(5, 255, 128)}),
    ("gate_up must be contiguous", {"gate_up": _fp8(5, 512, 128)[:, ::2]}),
    ("down must have size 5 in dimension 0", {"down": _fp8(4, 128, 128)}),
    ("gate_up_scale must be Float", {"gate_up_scale": ONES(5, 2).double()}),
    ("gate_up_scale must have 2 or 3 dimensions", {"gate_up_scale": ONES(5)}),
    ("gate_up_scale must have size 5 in dimension 0", {"gate_up_scale": ONES(4, 2)}),
    ("gate_up_scale must have size 256 in dimension 1", {"gate_up_scale": ONES(5, 3)}),
    ("down_scale must have size 128 in dimension 1", {"down_scale": ONES(5, 2)}),
    ("must both be of blocks, or neither", {"down_scale": ONES(5, 1, 1)}),
    ("down_scale must have size 1 in dimension 2", {"down_scale": ONES(5, 1, 2)}),
    ("must both be given, or neither", {"x_scale": None}),
    ("x_scale must have a number for each of the 5 experts", {"x_scale": ONES(1)}),
    ("inner_scale must be Float", {"inner_scale": ONES(5).bfloat16()}),
    ("weights must have size 2 in dimension 1", {"weights": ONES(4, 3)}),
    ("ids must be Int", {"ids": torch.zeros(4, 2).long()}),
    (r"ids\[0, 0\] is 5, outside the 5 experts", {"ids": torch.full((4, 2), 5).int()}),
]


@pytest.mark.parametrize(("message", "change"), BAD, ids=[message[:30] for message, _ in BAD])
def test_what_does_not_fit_is_refused_by_name(
    compiled: Any, message: str, change: dict[str, Any]
) -> None:
    call = drawn("tensor-static", (4, 5, 2, 128, 128), torch.float32)
    with pytest.raises(RuntimeError, match=f"scaled_experts: .*{message}|s: {message}"):
        compiled.scaled_experts(*replace(call, **change).arguments())


def test_rows_of_no_whole_blocks_are_refused(compiled: Any) -> None:
    call = drawn("tensor-token", (4, 5, 2, 130, 128), torch.float32)
    blocks = {"gate_up_scale": ONES(5, 2, 2), "down_scale": ONES(5, 2, 1)}
    with pytest.raises(RuntimeError, match="rows of 130 values are no whole blocks of 128"):
        compiled.scaled_experts(*replace(call, **blocks).arguments())


@pytest.mark.parametrize(("hidden", "width"), [(0, 4), (4, 0)])
def test_rows_without_values_are_refused(compiled: Any, hidden: int, width: int) -> None:
    call = drawn("tensor-token", (4, 5, 2, 48, 24), torch.float32)
    empty = {"gate_up": _fp8(5, 2 * width, hidden), "down": _fp8(5, hidden, width)}
    empty["x"] = ONES(4, hidden)
    with pytest.raises(RuntimeError, match=f"rows of {hidden} values and experts of {width}"):
        compiled.scaled_experts(*replace(call, **empty).arguments())
