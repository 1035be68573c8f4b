"""RMS norms written out in torch become `vcc::rms_norm`, with any epsilon.

    x / rms(x) * weight            rounded before the weight or behind it (Llama, Qwen)
    x / rms(x) * (1 + weight)      with the weight minus one stored (Gemma)
    torch.nn.functional.rms_norm

The operator rounds once, behind the weight.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.fusing import (
    a_number,
    a_tensor,
    a_vector,
    fuse,
    loose_rows,
    other_dtype,
)
from vcc.engine.passes.pattern import Capture, Const, Either, Match, Op, Pattern
from vcc.engine.passes.rewrite import call, replace, same_sizes, value
from vcc.engine.torch_shim.nodes import call_arguments

aten, vcc = torch.ops.aten, torch.ops.vcc

X = Capture("x", a_tensor)


def _wide(inner: Pattern) -> Pattern:
    """In fp32: cast, or fp32 as it is. A cast that others read too stays for them."""
    return Either((Op((aten.to.dtype,), inner, Const(torch.float32), shared=True), inner))


def _norm() -> Op:
    wide = _wide(X)
    square = Either(
        (
            Op((aten.pow.Tensor_Scalar,), wide, Const(2)),
            Op((aten.square.default,), wide),
            Op((aten.mul.Tensor,), wide, wide),
        )
    )
    mean = Op((aten.mean.dim,), square, Const([-1]), Const(True))
    scale = Op((aten.rsqrt.default,), Op((aten.add.Tensor,), mean, Capture("eps", a_number)))
    normed = Op((aten.mul.Tensor,), wide, scale, commutes=True)
    rounded = Either((Op((aten.to.dtype,), normed), Op((aten.type_as.default,), normed), normed))
    weight = _wide(Capture("weight", a_vector))
    gain = Either(
        (Op((aten.add.Tensor,), weight, Capture("offset", a_number), shared=True), weight)
    )
    return Op((aten.mul.Tensor,), gain, rounded, commutes=True)


SCALED = _norm()
ROUNDED = Op((aten.to.dtype, aten.type_as.default), SCALED)
OF_TORCH = Op((aten.rms_norm.default,), X)

NEAR = 5
"""Calls that must fit before a miss is called a near-match: products and casts are everywhere."""


def fuse_rms_norm(graph: GraphModule, context: PassContext) -> Outcome:
    """Write an RMS norm of plain torch as one operator."""
    forms = ((ROUNDED, _build), (SCALED, _build), (OF_TORCH, _build_torch))
    return fuse(graph, forms, NEAR)


def _build(found: Match) -> str:
    root, x, weight = found.nodes[0], found.captures["x"], found.captures["weight"]
    reason = _differs(root, x, weight)
    if not reason:
        offset = float(found.captures.get("offset", 0.0))
        _replace(root, x, weight, float(found.captures["eps"]), offset)
    return reason


def _differs(root: Node, x: Node, weight: Node) -> str:
    if not same_sizes(root, x):
        return f"{weight} makes the result larger than {x}"
    if value(weight).shape[0] != value(x).shape[-1]:
        return f"{weight} is no weight of the last dimension of {x}"
    return other_dtype(weight, x) or other_dtype(root, x) or loose_rows(x)


def _build_torch(found: Match) -> str:
    root, x = found.nodes[0], found.captures["x"]
    _, shape, weight, eps = call_arguments(root)
    if len(shape) != 1:
        return f"the norm runs over {len(shape)} dimensions"
    if not isinstance(weight, Node) or eps is None:
        return "it has no weight" if eps is not None else "its epsilon depends on the dtype"
    reason = _differs(root, x, weight)
    if not reason:
        _replace(root, x, weight, float(eps), 0.0)
    return reason


def _replace(root: Node, x: Node, weight: Node, eps: float, offset: float) -> None:
    replace(root, call(root, vcc.rms_norm.default, x, weight, eps, offset))


FUSE_RMS_NORM = builtin("fuse_rms_norm", fuse_rms_norm, needs=("vcc::rms_norm",))
