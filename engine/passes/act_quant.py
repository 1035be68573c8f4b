"""Gated activation and quantisation to fp8 become one operator, in the forms of a norm's."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.fusing import fuse
from vcc.engine.passes.pattern import Match, Op
from vcc.engine.passes.quant_forms import NEAR, WITH_FP8, forms_of
from vcc.engine.passes.rewrite import call
from vcc.engine.torch_shim.nodes import call_arguments

vcc = torch.ops.vcc

SILU = Op((vcc.silu_and_mul.default,), name="made")
GELU = Op((vcc.gelu_and_mul.default,), name="made")


def fuse_act_quant(graph: GraphModule, context: PassContext) -> Outcome:
    """Quantise to fp8 inside the gated activation whose result is quantised."""
    return fuse(graph, (*forms_of(SILU, _silu), *forms_of(GELU, _gelu)), NEAR)


def _silu(found: Match, quant: tuple[Any, ...]) -> Node:
    act: Node = found.captures["made"]
    forms = (vcc.silu_and_mul_quant.default, vcc.silu_and_mul_quant_dynamic.default)
    return call(act, forms[len(quant) - 1], *act.args, *quant)


def _gelu(found: Match, quant: tuple[Any, ...]) -> Node:
    act: Node = found.captures["made"]
    x, tanh = call_arguments(act)
    if len(quant) == 1:
        return call(act, vcc.gelu_and_mul_quant.default, x, *quant, tanh)
    return call(act, vcc.gelu_and_mul_quant_dynamic.default, x, tanh, *quant)


FUSE_ACT_QUANT = builtin(
    "fuse_act_quant",
    fuse_act_quant,
    needs=(
        "vcc::silu_and_mul_quant",
        "vcc::silu_and_mul_quant_dynamic",
        "vcc::gelu_and_mul_quant",
        "vcc::gelu_and_mul_quant_dynamic",
    ),
    gate=WITH_FP8,
)
