"""A node table as Graphviz text: a box a node, a frame a segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from vcc.engine.graphs.summary import NodeLine, Summary, summarise
from vcc.engine.graphs.table.types import NodeTable

SHAPES: Mapping[str, str] = {"KERNEL": "box", "GEMM": "box3d"}
"""Graphviz shape of a node's kind; the others are ellipses."""


def dot(table: NodeTable, sizes: Mapping[str, int]) -> str:
    """The nodes that run at these sizes, in their segments, with their edges.

    Render it with `dot -Tsvg FILE`; a table without edges is a chain.
    """
    found = summarise(table, sizes)
    lines = ["digraph step {", "  node [fontname=monospace fontsize=10];", *_clusters(found)]
    lines += [f"  n{source} -> n{target};" for source, target in _edges(table, found)]
    return "\n".join([*lines, "}", ""])


def _clusters(found: Summary) -> Iterator[str]:
    for number, segment in enumerate(found.segments):
        nodes = [line for line in found.nodes if line.segment == number]
        if not nodes:
            continue
        yield f"  subgraph cluster_{number} {{"
        yield f"    label={_quoted(f'{segment.kind.lower()} {segment.name}')};"
        yield from (f"    {_box(line)}" for line in nodes)
        yield "  }"


def _box(line: NodeLine) -> str:
    grid = "" if not line.grid else f"\n{'x'.join(map(str, line.grid))}"
    shape = SHAPES.get(line.kind, "ellipse")
    return f"n{line.index} [shape={shape} label={_quoted(f'{line.index} {line.what}{grid}')}];"


def _edges(table: NodeTable, found: Summary) -> Iterator[tuple[int, int]]:
    here = [line.index for line in found.nodes]
    if not table.edges:
        yield from pairwise(here)
    known = frozenset(here)
    for edge in table.edges:
        if {edge.source, edge.target} <= known:
            yield edge.source, edge.target


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
