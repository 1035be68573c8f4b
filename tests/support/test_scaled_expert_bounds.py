"""Bounds of fp8 experts: sums as short as a tensor core's are within them, and no fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from support.scaled_expert_bounds import FP32_SUMS, SHORT_SUMS, in_fp8
from support.scaled_expert_cases import FORMS, SIZES, Call, _scale, _wide, drawn, held
from vcc.engine.ops.native_scaled_experts import scaled_experts as plain

BITS, AT_ONCE, BLOCK = 13, 32, 128


def short_product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right.T as tensor cores of fp8 have it: fp64 [rows, columns].

    32 products and the sum so far are cut off 13 bits behind the largest of them, towards zero;
    every 128 values the sum goes to fp32.
    """
    total = torch.zeros(len(left), len(right), dtype=torch.float64)
    for block in range(0, left.shape[1], BLOCK):
        part = torch.zeros_like(total)
        for first in range(block, min(block + BLOCK, left.shape[1]), AT_ONCE):
            at = slice(first, min(first + AT_ONCE, block + BLOCK))
            terms = torch.cat((left[:, None, at] * right[None, :, at], part[..., None]), -1)
            _, exponent = torch.frexp(terms.abs().amax(-1, keepdim=True))
            unit = torch.ldexp(torch.ones_like(part[..., None]), exponent - 1 - BITS)
            part = ((terms / unit).trunc() * unit).sum(-1)
        total += part
    return total


def on_tensor_cores(call: Call) -> Tensor:
    """The experts of a call by short products; their order is the kernels'."""
    out = torch.zeros(call.x.shape, dtype=torch.float64)
    for expert in call.ids.unique().tolist():
        rows, choices = torch.where(call.ids == expert)
        x = call.x[rows]
        left = in_fp8(x, scale := _scale(call, x, call.x_scale, expert), scale.double())
        gate_up = short_product(left, _wide(call.gate_up[expert], call.gate_up_scale[expert]))
        gate, up = gate_up.chunk(2, dim=-1)
        inner = (torch.nn.functional.silu(gate) * up).to(call.x.dtype)
        scale = _scale(call, inner, call.inner_scale, expert)
        left = in_fp8(inner, scale, scale.double())
        each = short_product(left, _wide(call.down[expert], call.down_scale[expert]))
        out.index_add_(0, rows, each * call.weights[rows, choices, None].double())
    return out.to(call.x.dtype)


@pytest.mark.parametrize("form", FORMS)
def test_sums_of_a_tensor_core_are_within_them(form: str) -> None:
    for sizes in (SIZES[2], *(() if form == "block" else SIZES[:1])):
        for _ in range(2):
            call = drawn(form, sizes, torch.float32)
            held(on_tensor_cores(call), call, SHORT_SUMS)


def _busiest(call: Call) -> int:
    """The expert with the most rows."""
    return int(call.ids.flatten().bincount().argmax())


def _scaled(name: str, by: float) -> Callable[[Call], Call]:
    """The scales of an expert are other ones."""

    def changed(call: Call) -> Call:
        scale = getattr(call, name).clone()
        scale[_busiest(call)] *= by
        return replace(call, **{name: scale})

    return changed


def _dropped(of_weights: str, of_rows: str) -> Callable[[Call], Call]:
    """Rows are divided by their scales and not multiplied with them."""

    def changed(call: Call) -> Call:
        scale = getattr(call, of_weights) / getattr(call, of_rows)[:, None]
        return replace(call, **{of_weights: scale})

    return changed


def _mixed(of_weights: str, of_rows: str) -> Callable[[Call], Call]:
    """Rows are multiplied with the scale of another expert."""

    def changed(call: Call) -> Call:
        given = getattr(call, of_rows)
        scale = getattr(call, of_weights) * (given.roll(1) / given)[:, None]
        return replace(call, **{of_weights: scale})

    return changed


def _swapped(call: Call) -> Call:
    gate, up = call.gate_up.view(torch.uint8).chunk(2, dim=1)
    return replace(call, gate_up=torch.cat((up, gate), 1).view(call.gate_up.dtype))


def _another(call: Call) -> Call:
    ids = call.ids.clone()
    ids[ids == _busiest(call)] = call.gate_up.shape[0] - 1
    return replace(call, ids=ids)


def _unweighted(call: Call) -> Call:
    weights = call.weights.clone()
    weights[:, 0] = 0
    return replace(call, weights=weights)


def _shifted(call: Call) -> Call:
    return replace(call, down=call.down.view(torch.uint8).roll(1, 2).view(call.down.dtype))


FAULTS: dict[str, Callable[[Call], Call]] = {
    "gate and up are swapped": _swapped,
    "an expert in place of another": _another,
    "an expert of each row is left out": _unweighted,
    "columns of down are one off": _shifted,
    "a scale of gate is twice as large": _scaled("gate_up_scale", 2.0),
    "a scale of down is twice as large": _scaled("down_scale", 2.0),
    "scales of x are dropped": _dropped("gate_up_scale", "x_scale"),
    "scales of x are another expert's": _mixed("gate_up_scale", "x_scale"),
    "scales of what is between are dropped": _dropped("down_scale", "inner_scale"),
    "scales of what is between are another expert's": _mixed("down_scale", "inner_scale"),
}


@pytest.mark.parametrize("share", [FP32_SUMS, SHORT_SUMS], ids=["fp32", "short"])
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_is_within_them(fault: str, share: float) -> None:
    call = drawn("tensor-static", (24, 7, 3, 128, 64), torch.float32, used=6)
    held(plain(*call.arguments()), call, share)
    found = plain(*FAULTS[fault](call).arguments())
    with pytest.raises(AssertionError, match=r"results are off|root mean square"):
        held(found, call, share)
