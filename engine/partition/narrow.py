"""A trace for a part of its range: the same graph, of which passes may make another."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

from torch.fx import GraphModule

from vcc.cache.errors import CompileError
from vcc.engine.config.types import DimRange
from vcc.engine.torch_shim.fake import expression
from vcc.engine.types import Traced


def narrowed(traced: Traced, place: tuple[str, int], sizes: DimRange) -> Traced:
    """A copy of a trace whose size `place` lies in `sizes`.

    Args:
        traced: stays as it is.
        place: name of an input, and the dimension of it that has the size.
        sizes: within the traced range.

    Raises:
        CompileError: the input has no such size that varies.
    """
    symbol = _symbol(traced, place)
    graph = GraphModule(traced.graph, deepcopy(traced.graph.graph))
    return replace(traced, graph=graph, ranges={**traced.ranges, symbol: (sizes.min, sizes.max)})


def _symbol(traced: Traced, place: tuple[str, int]) -> str:
    name, dim = place
    for node in traced.graph.graph.nodes:
        if node.op == "placeholder" and node.name == name:
            size = expression(node.meta["val"].shape[dim])
            if size.is_Symbol:
                return str(size)
    raise CompileError(
        f"no code can be made for ranges of dimension {dim} of {name}",
        "the trace has one size for it",
        "leave compile_sizes and compile_ranges out",
    )
