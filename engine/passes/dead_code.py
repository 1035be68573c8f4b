"""Dead code elimination: calls whose result nobody uses and which write nothing."""

from __future__ import annotations

from torch.fx import GraphModule

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.torch_shim.nodes import is_pure


def eliminate_dead_code(graph: GraphModule, context: PassContext) -> Outcome:
    """Remove unused pure calls; in-place writes and splitting ops stay."""
    before = len(graph.graph.nodes)
    graph.graph.eliminate_dead_code(is_impure_node=lambda node: not is_pure(node))
    return Outcome(before - len(graph.graph.nodes))


ELIMINATE_DEAD_CODE = builtin("eliminate_dead_code", eliminate_dead_code)
