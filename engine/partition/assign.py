"""Which part each node of a traced graph belongs to: cut at splitting ops."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from enum import Enum

import torch
from torch.fx import Graph, Node

from vcc.cache.errors import CompileError
from vcc.engine.partition.aliases import refuse_lost_writes
from vcc.engine.torch_shim.nodes import is_splitting, is_symbolic

ALLOCATIONS = frozenset(
    {
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.empty_like.default,
        torch.ops.aten.empty_strided.default,
        torch.ops.aten.new_empty.default,
        torch.ops.aten.new_empty_strided.default,
    }
)


class PartKind(Enum):
    """A part is either compiled, or one splitting op."""

    PIECE = "piece"
    SPLIT = "split"


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive nodes: those of one piece, or a splitting op with its getitems."""

    kind: PartKind
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The parts in order, and the allocations that became buffers of the step."""

    parts: tuple[Part, ...]
    buffers: tuple[Node, ...]


def assign(graph: Graph, splitting_ops: frozenset[str]) -> Assignment:
    """Cut the graph; sizes belong to no part, each piece rebuilds the ones it needs.

    An uninitialised allocation whose first use is a splitting op's becomes a buffer of the step, so
    a part that held nothing else disappears. Any other is made in the part that uses it first: no
    piece hands over what nobody has written, which no golden could check.

    Raises:
        CompileError: a write through a view would be lost at a cut.
    """
    buffers = _step_buffers(graph, splitting_ops)
    owner = _owners(graph, splitting_ops, frozenset(buffers))
    groups: dict[int, list[Node]] = {}
    _made_where_used(owner)
    for node, part in owner.items():
        groups.setdefault(part, []).append(node)
    parts = tuple(_part(nodes, splitting_ops) for _, nodes in sorted(groups.items()))
    refuse_lost_writes([part.nodes for part in parts], _returned(graph))
    return Assignment(parts, buffers)


def _step_buffers(graph: Graph, names: frozenset[str]) -> tuple[Node, ...]:
    place = {node: index for index, node in enumerate(graph.nodes)}
    found = []
    for node in graph.nodes:
        # What is allocated like it takes its sizes alone.
        users = [u for u in node.users if u.target not in ALLOCATIONS and not is_symbolic(u)]
        first = min(users, key=place.__getitem__, default=None)
        if node.target in ALLOCATIONS and first is not None and is_splitting(first.target, names):
            found.append(node)
    return tuple(found)


def _made_where_used(owner: dict[Node, int]) -> None:
    # From the end: of two allocations the one that is made like the other is settled first.
    for node in reversed(owner):
        users = [owner[user] for user in node.users if user in owner]
        if node.target in ALLOCATIONS and users:
            owner[node] = min(users)


def _owners(graph: Graph, names: frozenset[str], buffers: frozenset[Node]) -> dict[Node, int]:
    owner: dict[Node, int] = {}
    current = 0
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or node in buffers or is_symbolic(node):
            continue
        if node.target is operator.getitem and node.args[0] in owner:
            owner[node] = owner[_producer(node)]
        elif is_splitting(node.target, names):
            owner[node] = current + 1
            current += 2
        else:
            owner[node] = current
    return owner


def _producer(node: Node) -> Node:
    source = node.args[0]
    if not isinstance(source, Node):
        raise CompileError(f"getitem of a literal at {node.name}", "the graph is malformed")
    return source


def _part(nodes: list[Node], names: frozenset[str]) -> Part:
    split = is_splitting(nodes[0].target, names)
    return Part(PartKind.SPLIT if split else PartKind.PIECE, tuple(nodes))


def _returned(graph: Graph) -> list[Node]:
    output = next(node for node in graph.nodes if node.op == "output")
    return list(output.all_input_nodes)
