"""Refuse writes that would be lost: values that pieces hand over are copies, not views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.fx import Node

from vcc.cache.errors import CompileError
from vcc.engine.torch_shim.nodes import StorageKey, mutated_arguments, storage_key


def refuse_lost_writes(parts: Iterable[Sequence[Node]], outputs: Sequence[Node]) -> None:
    """Follow each memory through the parts and refuse a read of a copy that is out of date.

    A value that leaves a part is copied into a buffer of its own. Two of them that are views of
    one memory in the model are two memories in the step: what is written through one of them
    does not reach the other.

    Args:
        parts: the nodes of each part, in order.
        outputs: what the step returns.

    Raises:
        CompileError: names the value and the write that it misses.
    """
    copies = _Copies()
    for nodes in parts:
        copies.visit(nodes)
    for node in outputs:
        copies.check(node, "the step returns")


class _Copies:
    """Which handed-over values hold what their memory holds in the model."""

    def __init__(self) -> None:
        self._seen: dict[StorageKey, dict[Node, None]] = {}
        self._missed: dict[Node, Node] = {}

    def visit(self, nodes: Sequence[Node]) -> None:
        members = frozenset(nodes)
        taken = dict.fromkeys(s for n in nodes for s in n.all_input_nodes if s not in members)
        for node in taken:
            self.check(node, f"{nodes[-1].name} depends on")
            self._see(node)
        for node in nodes:
            for argument in mutated_arguments(node):
                self._write(node, argument, [t for t in taken if _same_memory(t, argument)])
        for node in nodes:
            if any(user not in members for user in node.users):
                self._see(node)

    def check(self, node: Node, who: str) -> None:
        writer = self._missed.get(node)
        if writer is not None:
            raise CompileError(
                f"{who} {node.name}, a view whose memory {writer.target} writes",
                "pieces hand results over as copies, so the write would be lost",
                "make the view after the write, or give each part a tensor of its own",
            )

    def _see(self, node: Node) -> None:
        if (key := _memory(node)) is not None:
            self._seen.setdefault(key, {})[node] = None
            self._missed.pop(node, None)

    def _write(self, writer: Node, argument: Node, handed: Sequence[Node]) -> None:
        """The write reaches the one value through which this part got the memory."""
        key = _memory(argument)
        if key is None or not handed:
            return
        for other in [*self._seen.get(key, ()), *handed[1:]]:
            if other is not handed[0]:
                self._missed[other] = writer
        for other in handed[1:]:
            self.check(other, f"{writer.name} stands in one piece with")


def _memory(node: Node) -> StorageKey | None:
    value = node.meta.get("val")
    return storage_key(value) if isinstance(value, torch.Tensor) else None


def _same_memory(left: Node, right: Node) -> bool:
    return left is right or (_memory(left) is not None and _memory(left) == _memory(right))
