"""The sum over tensor-parallel ranks goes into the norm behind it: `vcc::all_reduce_rms_norm`.

No kernel of that operator exists yet, so the pass is skipped with that reason. It is worth its
exchange for steps of few tokens only, which its gate says.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from vcc.engine.passes.base import Gate, Outcome, PassContext, builtin
from vcc.engine.passes.fusing import a_tensor, fuse, place_of
from vcc.engine.passes.pattern import Capture, Match, Op
from vcc.engine.passes.rewrite import call, item, replace
from vcc.engine.passes.version import RULES
from vcc.engine.torch_shim.collectives import functional_all_reduce
from vcc.engine.torch_shim.nodes import call_arguments

vcc = torch.ops.vcc
X = Capture("x", a_tensor)
NAME = "fuse_all_reduce_norm"


def fuse_all_reduce_norm(graph: GraphModule, context: PassContext) -> Outcome:
    """Sum over ranks inside the RMS norm that adds the residual."""
    if context.parallel.tp < 2:
        return Outcome(0, ("there is one tensor-parallel rank: nothing is summed",))
    all_reduce, wait = functional_all_reduce()
    summed = Op(
        (wait,),
        Op(
            (all_reduce,),
            Capture("x", a_tensor),
            Capture("kind"),
            Capture("group"),
        ),
    )
    pattern = Op((vcc.fused_add_rms_norm.default,), summed)
    return fuse(graph, ((pattern, _build),))


def _build(found: Match) -> str:
    root, kept = found.nodes[0], found.captures
    if kept["kind"] != "sum":
        return f"ranks are joined by {kept['kind']}, not by a sum"
    _, residual, weight, eps, offset = call_arguments(root)
    operands = (kept["x"], residual, weight, kept["group"], eps, offset)
    made = call(root, vcc.all_reduce_rms_norm.default, *operands)
    for one in list(root.users):
        replace(one, item(made, place_of(one)))
    return ""


FUSE_ALL_REDUCE_NORM = builtin(
    NAME,
    fuse_all_reduce_norm,
    needs=("vcc::all_reduce_rms_norm",),
    gate=Gate(max_tokens=RULES[NAME].range_ends[0]),
)
