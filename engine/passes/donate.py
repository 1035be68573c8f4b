"""Donated buffers: what a piece hands over goes into a buffer whose last reader is that piece.

Values between pieces lie in one workspace, packed by lifetime. A value that dies in a piece and
one that the piece makes overlap there, so each has memory of its own, though the second could lie
where the first was. Inside a piece the compiler orders reads before the write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.fx import Graph, GraphModule, Node

from vcc.cache.errors import CompileError
from vcc.engine.partition.assign import Part, PartKind, assign
from vcc.engine.passes.base import Gate, Outcome, PassContext, builtin
from vcc.engine.passes.memory import memory_of, readers, refresh, sharing, writers
from vcc.engine.passes.rewrite import bytes_of, call, same_sizes, value
from vcc.engine.torch_shim.nodes import StorageKey, is_symbolic
from vcc.engine.types import Saved

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class _Cut:
    """A graph cut into parts.

    Attributes:
        parts: in order.
        owner: the part of each node by number; inputs and step buffers have none.
        groups, written: nodes and writers of each memory.
    """

    parts: tuple[Part, ...]
    owner: dict[Node, int]
    groups: Mapping[StorageKey, Sequence[Node]]
    written: Mapping[StorageKey, Sequence[Node]]

    def group(self, node: Node) -> Sequence[Node]:
        """The nodes that share its memory."""
        memory = memory_of(node)
        return () if memory is None else self.groups.get(memory, ())

    def end(self, node: Node) -> int:
        """The last part that reads the memory of a node; after all parts for the step's result."""
        users = readers(self.group(node))
        places = [self.owner.get(one, len(self.parts)) for one in users if not is_symbolic(one)]
        return max(places, default=-1)


def donate_buffers(graph: GraphModule, context: PassContext) -> Outcome:
    """Hand results of a piece over in buffers that die in it."""
    ops = frozenset(context.config.splitting_ops or ())
    try:
        cut = _cut(graph.graph, ops)
    except CompileError as error:
        return Outcome(0, (f"{error}",))
    matches, saved = 0, Saved()
    for number, part in enumerate(cut.parts):
        if part.kind is not PartKind.PIECE:
            continue
        pairs = _pairs(number, part, cut)
        for old, new in pairs:
            saved += Saved(bytes_of(new))
            cut.owner[_donate(old, new, part)] = number
        if pairs:
            cut = _looked_at_again(cut, graph.graph)
        matches += len(pairs)
    return Outcome(matches, (), saved)


def _cut(graph: Graph, ops: frozenset[str]) -> _Cut:
    parts = assign(graph, ops).parts
    owner = {node: number for number, part in enumerate(parts) for node in part.nodes}
    return _Cut(parts, owner, sharing(graph), writers(graph))


def _looked_at_again(cut: _Cut, graph: Graph) -> _Cut:
    """The same parts, after views of what was handed over have become views of the buffer."""
    refresh(graph)
    return replace(cut, groups=sharing(graph), written=writers(graph))


def _pairs(number: int, part: Part, cut: _Cut) -> list[tuple[Node, Node]]:
    """(dying value, value handed over) of a piece, each value once."""
    taken = dict.fromkeys(s for node in part.nodes for s in node.all_input_nodes)
    dying = [one for one in taken if _dies(one, number, cut)]
    found = []
    for new in part.nodes:
        if not _handed_over(new, number, cut):
            continue
        old = next((one for one in dying if _fits(one, new)), None)
        if old is not None:
            dying.remove(old)
            found.append((old, new))
    return found


def _dies(node: Node, number: int, cut: _Cut) -> bool:
    """Whether this piece is the last reader of a buffer, and takes it by this one name."""
    if node.op != "call_function" or memory_of(node) is None or cut.owner.get(node) == number:
        return False
    group = cut.group(node)
    inputs = any(one.op != "call_function" for one in group)
    crossing = [
        one
        for one in group
        if cut.owner.get(one) != number
        and any(cut.owner.get(user) != cut.owner.get(one) for user in one.users)
    ]
    return not inputs and crossing == [node] and cut.end(node) == number


def _handed_over(node: Node, number: int, cut: _Cut) -> bool:
    """Whether later parts read this value, which nobody writes, and no view of it."""
    memory = memory_of(node)
    if memory is None or memory in cut.written:
        return False
    outside = [user for user in node.users if cut.owner.get(user, -1) != number]
    if not outside or any(user.op == "output" or is_symbolic(user) for user in outside):
        return False
    others = [one for one in cut.group(node) if one is not node and cut.owner.get(one) == number]
    return not any(cut.owner.get(user, -1) != number for one in others for user in one.users)


def _fits(old: Node, new: Node) -> bool:
    one, other = value(old), value(new)
    return (one.dtype, one.device) == (other.dtype, other.device) and same_sizes(old, new)


def _donate(old: Node, new: Node, part: Part) -> Node:
    """Copy at the end of the piece, where the compiler fuses it, and let later parts read `old`."""
    members = frozenset(part.nodes)
    copy = call(part.nodes[-1].next, aten.copy_.default, old, new)
    for user in list(new.users):
        if user not in members and user is not copy:
            user.replace_input_with(new, old)
    return copy


DONATE_BUFFERS = builtin("donate_buffers", donate_buffers, gate=Gate(targets=("cpu",)))
