"""Split coalescing: slices that cut a dimension into consecutive parts are one split.

Views cost nothing by themselves, so this saves nodes and no launches; what it gives is one form of
the same cut, which patterns can name.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.rewrite import call, calls, item, replace, value
from vcc.engine.torch_shim.nodes import call_arguments

aten = torch.ops.aten

SPLITS = (
    aten.split_with_sizes.default,
    aten.split.Tensor,
    aten.chunk.default,
    aten.unbind.int,
)

Piece = tuple[int, int]
"""Begin and end along a dimension."""


def coalesce_splits(graph: GraphModule, context: PassContext) -> Outcome:
    """Equal splits become one, and slices that make up a dimension become a split."""
    merged = _merge_equal(graph.graph)
    cut, refused = _merge_slices(graph.graph)
    return Outcome(merged + cut, tuple(refused))


def _merge_equal(graph: Graph) -> int:
    """One split in place of several of the same tensor with the same arguments."""
    first: dict[Hashable, Node] = {}
    merged = 0
    for node in calls(graph, *SPLITS, aten.slice.Tensor):
        known = first.setdefault((node.target, *_plain(call_arguments(node))), node)
        if known is node:
            continue
        for user in list(node.users):
            user.replace_input_with(node, known)
        graph.erase_node(node)
        merged += 1
    return merged


def _plain(given: Sequence[Any]) -> tuple[Hashable, ...]:
    return tuple(repr(map_arg(one, lambda node: node.name)) for one in given)


def _merge_slices(graph: Graph) -> tuple[int, list[str]]:
    groups: dict[tuple[Node, int], list[tuple[Piece, Node]]] = {}
    for node in calls(graph, aten.slice.Tensor):
        found = _bounds(node)
        if found is not None:
            source, dim, piece = found
            groups.setdefault((source, dim), []).append((piece, node))
    matches, refused = 0, []
    for (_, dim), cuts in groups.items():
        # The source may itself have been a slice that became a part of a split.
        source = cuts[0][1].all_input_nodes[0]
        pieces = [piece for piece, _ in cuts]
        gap = _gap(sorted(pieces), int(value(source).shape[dim]))
        if len(pieces) > 1 and gap:
            refused.append(f"{cuts[0][1].name}: {gap}")
        elif len(pieces) > 1:
            _as_split(source, dim, cuts)
            matches += 1
    return matches, refused


def _bounds(node: Node) -> tuple[Node, int, Piece] | None:
    """Source, dimension, begin and end of a plain slice of a dimension of known size."""
    source, dim, begin, end, step = call_arguments(node)
    if not isinstance(source, Node) or step != 1:
        return None
    shape = value(source).shape
    dim %= len(shape)
    size, begin, end = shape[dim], begin or 0, shape[dim] if end is None else end
    if not all(isinstance(one, int) for one in (size, begin, end)):
        return None
    begin, end = (max(0, min(size, one + size if one < 0 else one)) for one in (begin, end))
    return (source, dim, (begin, end)) if begin < end < size or 0 < begin < end else None


def _gap(pieces: Sequence[Piece], size: int) -> str:
    """Where pieces in order fail to make up the dimension; empty when they do."""
    at = 0
    for begin, end in pieces:
        if begin != at:
            return f"slices {'overlap' if begin < at else 'leave a gap'} at {min(begin, at)}"
        at = end
    return "" if at == size else f"slices leave a gap at {at}"


def _as_split(source: Node, dim: int, cuts: Sequence[tuple[Piece, Node]]) -> None:
    ordered = sorted(cuts, key=lambda cut: cut[0])
    first = cuts[0][1]  # in the order of the graph
    sizes = [end - begin for (begin, end), _ in ordered]
    split = call(first, aten.split_with_sizes.default, source, sizes, dim)
    for index in reversed(range(len(ordered))):
        replace(ordered[index][1], item(split, index))


COALESCE_SPLITS = builtin("coalesce_splits", coalesce_splits)
