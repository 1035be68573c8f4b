"""How graphs write quantisation to fp8, and what is the same in one fused operator.

    (y.float() / scale).clamp(-448, 448).to(float8_e4m3fn)                       static
    scale = y.float().abs().amax(-1, keepdim=True).clamp(min=least) / 448         by row
    the same of y.float().unflatten(-1, (-1, block_size))                         by block

The operators divide in fp32; other ways to the same number round otherwise and are left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from vcc.engine.passes.base import Gate
from vcc.engine.passes.fusing import RESHAPES, Build, a_number, moved_before
from vcc.engine.passes.pattern import Capture, Const, Either, Match, Op, Pattern
from vcc.engine.passes.rewrite import call, item, replace, value
from vcc.engine.torch_shim.fake import expression
from vcc.engine.torch_shim.triton_nodes import is_triton_launch

aten = torch.ops.aten

SAME_ORDER = (*RESHAPES, aten.squeeze.dim, aten.squeeze.default, aten.unsqueeze.default)

FP8 = torch.float8_e4m3fn
MOST = 448.0

WITH_FP8 = Gate(targets=("cpu", "sm_89", "sm_90", "sm_100", "sm_120"))
"""Targets whose Triton kernels can write fp8: older devices have no such type."""

Fused = Callable[[Match, tuple[Any, ...]], Node]
"""Makes the fused call of a match from `(scale,)` or `(block_size, least)`, at its producer."""


def _one_number(given: Any) -> str:
    if not isinstance(given, Node):
        return f"{given} is no scale"
    kept = value(given)
    single = all(size == 1 for size in kept.shape if isinstance(size, int))
    if not single or any(not isinstance(size, int) for size in kept.shape):
        return f"{given} is not one scale for all values"
    return "" if kept.dtype == torch.float32 else f"{given} is no scale in fp32"


def _fp32(inner: Pattern) -> Pattern:
    return Either((Op((aten.to.dtype,), inner, Const(torch.float32)), inner))


def _to_fp8(quotient: Op) -> Op:
    clamped = Op((aten.clamp.default,), quotient, Const(-MOST), Const(MOST))
    return Op((aten.to.dtype,), clamped, Const(FP8), name="quantised")


def static(of: Pattern) -> Op:
    """The pattern of static quantisation; captures `scale`."""
    return _to_fp8(
        Op((aten.div.Tensor,), _fp32(of), Capture("scale", _one_number), name="quotient")
    )


def dynamic(of: Pattern) -> tuple[Op, ...]:
    """The patterns of quantisation by row or block; captures `least` where it is bounded."""
    blocks = Either((Op(RESHAPES, _fp32(of), name="blocks"), _fp32(of)))
    most = Op((aten.amax.default,), Op((aten.abs.default,), blocks), Const([-1]), Const(True))
    bound = Capture("least", a_number)
    clamps = (aten.clamp.default, aten.clamp_min.default)
    found = []
    for largest in (Op(clamps, most, bound, name="bounded"), most):
        scale = Op((aten.div.Tensor,), largest, Const(MOST), name="scale", shared=True)
        found.append(_to_fp8(Op((aten.div.Tensor,), blocks, scale, name="quotient")))
    return tuple(found)


NEAR = 2
"""Calls that must fit before a miss is told: casts are everywhere."""


def forms_of(of: Pattern, fused: Fused) -> tuple[tuple[Op, Build], ...]:
    """The patterns of quantising something, for `fuse`.

    Args:
        of: what is quantised; it captures as `made` the call or item that gives it.
        fused: makes the fused call at the place of `made`.
    """
    moving = ((form, lambda found: _dynamic(found, fused)) for form in dynamic(of))
    return (*moving, (static(of), lambda found: _static(found, fused)))


def _static(found: Match, fused: Fused) -> str:
    scale = found.captures["scale"]
    made = found.captures.get("call", found.captures["made"])  # of an item the call that gives it
    if not moved_before(scale, made):
        return f"{scale} is made after {made}"
    reason = _rounded(found)
    if not reason:
        replace(found.nodes[0], first_of(fused(found, (scale,))))
    return reason


def _dynamic(found: Match, fused: Fused) -> str:
    root, scale = found.nodes[0], found.captures["scale"]
    block = _block_size(found)
    reason = _rounded(found) if isinstance(block, int) else block
    if block and launched_on(scale):
        reason = f"a kernel that is launched reads {scale} by row, where it lies by block"
    if reason or not isinstance(block, int):
        return reason
    made = fused(found, (block, float(found.captures.get("least", 0.0))))
    values, scales = item(made, 0), item(made, 1)
    if block:
        shape = call_shape(found.captures["blocks"])
        values = call(root, aten.view.default, values, shape)
        scales = call(scales.next, aten.unsqueeze.default, scales, -1)
    replace(root, values)
    replace(scale, scales)
    return ""


def launched_on(node: Node) -> bool:
    """Whether a Triton launch reads a value, or a view in the same order, as it lies in memory."""
    return any(
        is_triton_launch(user) or (user.target in SAME_ORDER and launched_on(user))
        for user in node.users
    )


def first_of(made: Node) -> Node:
    """The quantised values of a fused call."""
    return item(made, 0) if isinstance(value(made), tuple) else made


def call_shape(blocks: Node) -> list[Any]:
    """The sizes of a reshape into blocks as arguments: at most one of them is not a number."""
    sizes = value(blocks).shape
    return [size if isinstance(size, int) else -1 for size in sizes]


def _rounded(found: Match) -> str:
    quotient = found.captures["quotient"]
    dtype = value(quotient).dtype
    return "" if dtype == torch.float32 else f"{quotient} is rounded to {dtype} before it is cast"


def _block_size(found: Match) -> int | str:
    """Values that share a scale, 0 for a row; or why they are no blocks of a row."""
    bounded = found.captures.get("bounded")
    if bounded is not None and len(bounded.args) > 2:
        return f"{bounded} bounds the scale from above"
    blocks, made = found.captures.get("blocks"), found.captures["made"]
    if blocks is None:
        return 0
    row, cut = value(made).shape, value(blocks).shape
    sizes = [expression(size) for size in cut]
    rows = [expression(size) for size in row]
    if len(sizes) != len(rows) + 1 or sizes[:-2] != rows[:-1] or sizes[-2] * sizes[-1] != rows[-1]:
        return f"{blocks} does not cut the rows of {made} into blocks"
    if sum(not isinstance(size, int) for size in cut) > 1:
        return f"{blocks} has several sizes that are not fixed"
    return int(cut[-1])
