"""Passes as a user writes them, right and careless, and a small model to run them on."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from vcc.engine.passes.base import Outcome, PassContext, define
from vcc.engine.passes.rewrite import call, calls, replace

aten = torch.ops.aten


def square(graph: GraphModule, context: PassContext) -> Outcome:
    """`x ** 2` as `x * x`."""
    found = [n for n in calls(graph.graph, aten.pow.Tensor_Scalar) if n.args[1] == 2]
    for node in found:
        replace(node, call(node, aten.mul.Tensor, node.args[0], node.args[0]))
    return Outcome(len(found))


def never(graph: GraphModule, context: PassContext) -> Outcome:
    """Looks for what no model holds."""
    return Outcome(len(list(calls(graph.graph, aten.erfinv.default))))


def wrong(graph: GraphModule, context: PassContext) -> Outcome:
    """`x ** 2` as `x + x`, which is another value of the same shape."""
    found = [n for n in calls(graph.graph, aten.pow.Tensor_Scalar) if n.args[1] == 2]
    for node in found:
        replace(node, call(node, aten.add.Tensor, node.args[0], node.args[0]))
    return Outcome(len(found))


def raises(graph: GraphModule, context: PassContext) -> Outcome:
    """Fails."""
    raise ZeroDivisionError("by hand")


SQUARE = define("square", square)
NEVER = define("never", never)
WRONG = define("wrong", wrong)
RAISES = define("raises", raises)


class Norm(nn.Module):
    """x [T, 8] scaled to a mean square of one, then a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """x [T, 8] -> [T, 8]."""
        return self.layer(x[:] * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def make() -> nn.Module:
    """A factory."""
    torch.manual_seed(0)
    return Norm()
