"""Experts with fp8 weights: drawn calls of every form, and what plain eager torch gives for them.

    TRITON_INTERPRET=1 python -m support.scaled_expert_cases float32

runs the Triton kernels by the interpreter; inputs are fresh each time, the seed is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial

import torch
from torch import Tensor

from support.scaled_expert_bounds import FP32_SUMS, SHORT_SUMS, Bounds, in_fp8, inner_of

FP8, MOST, BLOCK, LEAST = torch.float8_e4m3fn, 448.0, 128, 1e-10
FORMS = ("tensor-static", "tensor-token", "channel-static", "channel-token", "block")

Sizes = tuple[int, int, int, int, int]
"""Rows, experts, experts a row, width of a row and of an expert."""

SIZES: tuple[Sizes, ...] = (
    (1, 4, 2, 32, 16),
    (40, 4, 3, 50, 23),
    (9, 12, 4, 256, 128),
    (70, 3, 2, 128, 128),
)
"""The second and the last have more rows an expert than a low tile is for."""


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of `vcc::scaled_experts`, in order."""

    x: Tensor
    gate_up: Tensor
    down: Tensor
    gate_up_scale: Tensor
    down_scale: Tensor
    x_scale: Tensor | None
    inner_scale: Tensor | None
    weights: Tensor
    ids: Tensor
    least: float = LEAST

    def arguments(self) -> list[Tensor | float | None]:
        return [getattr(self, one.name) for one in fields(self)]

    def to(self, device: str) -> Call:
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        moved = {n: t.to(device) for n, t in given.items() if isinstance(t, Tensor)}
        return replace(self, **moved)


def drawn(form: str, sizes: Sizes, dtype: torch.dtype, used: int = 0) -> Call:
    """A call whose last expert gets no row, where one can be left out.

    Args:
        form: one of FORMS.
        sizes: of the call.
        dtype: of rows and results.
        used: experts that rows are sent to; 0 is all but the last.
    """
    tokens, count, top_k, hidden, width = sizes
    whole = used or (count - 1 if count > top_k else count)
    routes = [torch.randperm(whole)[:top_k] for _ in range(tokens)]
    ids = torch.stack(routes) if routes else torch.zeros(0, top_k)
    gate_up, gate_up_scale = _weight(form, torch.randn(count, 2 * width, hidden) / hidden**0.5, 2)
    down, down_scale = _weight(form, torch.randn(count, hidden, width) / width**0.5, 1)
    static = form.endswith("static")
    return Call(
        torch.randn(tokens, hidden).to(dtype),
        *(gate_up, down, gate_up_scale, down_scale),
        # Some values are beyond what a given scale reaches.
        (0.5 + torch.rand(count)) * 3 / MOST if static else None,
        (0.5 + torch.rand(count)) / MOST if static else None,
        torch.rand(tokens, top_k),
        ids.to(torch.int32),
    )


def _weight(form: str, weight: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Weights [E, rows, columns] in fp8, each part of very different size, and their scales."""
    count, rows, columns = weight.shape
    weight = weight * torch.logspace(-1, 1, parts).repeat_interleave(rows // parts)[:, None]
    weight = weight * (0.3 + torch.rand(count, 1, 1))
    if form.startswith("tensor"):
        scale = weight.abs().view(count, parts, -1).amax(-1) / MOST
        each = scale.repeat_interleave(rows // parts, 1)[..., None]
    elif form.startswith("channel"):
        scale = weight.abs().amax(-1) / MOST
        each = scale[..., None]
    else:
        cut = weight.view(count, rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
        scale = cut.abs().amax((2, 4)) / MOST
        each = scale.repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)
    return (weight / each).clamp(-MOST, MOST).to(FP8), scale


def bounds(call: Call, share: float) -> Bounds:
    """One expert after another in fp64, but for what the dtype and fp8 keep on the way."""
    found = Bounds.zero(call.x)
    for expert in call.ids.unique().tolist():
        rows, choices = torch.where(call.ids == expert)
        scale = _scale(call, call.x[rows], call.x_scale, expert)
        left = in_fp8(call.x[rows], scale, scale.double())
        inner_at = partial(
            inner_of,
            left,
            _wide(call.gate_up[expert], call.gate_up_scale[expert]),
            lambda x: x.to(call.x.dtype).double(),
            partial(_scale, call, given=call.inner_scale, expert=expert),
        )
        weight = call.weights[rows, choices, None].double()
        down = _wide(call.down[expert], call.down_scale[expert])
        found.add(rows, weight, inner_at, down, share)
    return found


def _scale(call: Call, x: Tensor, given: Tensor | None, expert: int) -> Tensor:
    """The scale of each value: given, of its row, or of its block."""
    if given is not None:
        return given[expert].expand(x.shape)
    parts = x.float().view(len(x), -1, BLOCK if call.gate_up_scale.dim() == 3 else x.shape[1])
    scale = parts.abs().amax(-1, keepdim=True).clamp(min=call.least) / MOST
    return scale.expand(parts.shape).reshape(x.shape)


def _wide(weight: Tensor, scale: Tensor) -> Tensor:
    if scale.dim() == 2:
        wide = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    else:
        wide = scale.repeat_interleave(weight.shape[0] // scale.shape[0])[:, None]
    return weight.double() * wide


def held(got: Tensor, call: Call, share: float = FP32_SUMS) -> None:
    """Results against eager torch: a value between two steps of fp8 may go either way.

    Args:
        got: [T, H].
        call: that gave it.
        share: what sums in another order differ by; see `support.scaled_expert_bounds`.

    Raises:
        AssertionError: by how much it is wrong.
    """
    assert got.dtype == call.x.dtype
    assert got.shape == call.x.shape
    if got.numel():
        bounds(call, share).check(got)


LARGE: tuple[Sizes, ...] = ((16, 32, 4, 512, 384), (500, 16, 4, 512, 384))


def cases(dtype: torch.dtype, every: bool) -> Iterator[Call]:
    """Blocks in sizes that whole blocks fit into, the other forms in sizes that nothing fits.

    Args:
        dtype: of rows.
        every: all forms in all sizes that they take, and in large ones.
    """
    for sizes in (*SIZES, *(LARGE if every else ())):
        whole = sizes[3] % BLOCK == sizes[4] % BLOCK == 0
        for form in FORMS:
            if whole if form == "block" else every or not whole:
                yield drawn(form, sizes, dtype)


def check(dtype: torch.dtype, device: str = "cpu") -> None:
    """The Triton kernels, by the interpreter or on a device."""
    from vcc.engine.ops.triton.wrapped_scaled_experts import scaled_experts

    for call in cases(dtype, every=device != "cpu"):
        moved = call.to(device)
        share = SHORT_SUMS if device != "cpu" else FP32_SUMS
        held(scaled_experts(*moved.arguments(), through=lambda kernel: kernel), moved, share)


if __name__ == "__main__":
    print("torch seed", torch.seed())
    check(getattr(torch, sys.argv[1]))
