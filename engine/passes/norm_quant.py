"""RMS norm, with or without a residual addition, and quantisation to fp8 become one operator.

Static, dynamic by row, and by block of a row; the norm itself must have no other reader.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.fusing import fuse
from vcc.engine.passes.pattern import Item, Match, Op
from vcc.engine.passes.quant_forms import NEAR, WITH_FP8, forms_of
from vcc.engine.passes.rewrite import call, item, replace
from vcc.engine.torch_shim.nodes import call_arguments

vcc = torch.ops.vcc

NORM = Op((vcc.rms_norm.default,), name="made")
ADD_NORM = Item(Op((vcc.fused_add_rms_norm.default,), name="call", shared=True), 0, name="made")


def fuse_norm_quant(graph: GraphModule, context: PassContext) -> Outcome:
    """Quantise to fp8 inside the RMS norm whose result is quantised."""
    return fuse(graph, (*forms_of(NORM, _norm), *forms_of(ADD_NORM, _add_norm)), NEAR)


def _norm(found: Match, quant: tuple[Any, ...]) -> Node:
    norm: Node = found.captures["made"]
    x, weight, eps, offset = call_arguments(norm)
    if len(quant) == 1:
        return call(norm, vcc.rms_norm_quant.default, x, weight, *quant, eps, offset)
    return call(norm, vcc.rms_norm_quant_dynamic.default, x, weight, eps, offset, *quant)


def _add_norm(found: Match, quant: tuple[Any, ...]) -> Node:
    old: Node = found.captures["call"]
    x, residual, weight, eps, offset = call_arguments(old)
    if len(quant) == 1:
        target, rest = vcc.fused_add_rms_norm_quant.default, (weight, *quant, eps, offset)
    else:
        target, rest = vcc.fused_add_rms_norm_quant_dynamic.default, (weight, eps, offset, *quant)
    made = call(old, target, x, residual, *rest)
    for user in list(old.users):
        if user is not found.captures["made"]:  # the sum
            replace(user, item(made, len(made.meta["val"]) - 1))
    return made


FUSE_NORM_QUANT = builtin(
    "fuse_norm_quant",
    fuse_norm_quant,
    needs=(
        "vcc::rms_norm_quant",
        "vcc::rms_norm_quant_dynamic",
        "vcc::fused_add_rms_norm_quant",
        "vcc::fused_add_rms_norm_quant_dynamic",
    ),
    gate=WITH_FP8,
)
