"""Who shares memory with whom, and who writes it: what passes ask before they touch a copy."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from vcc.engine.passes.rewrite import fake_value
from vcc.engine.torch_shim.nodes import StorageKey, mutated_arguments, storage_key
from vcc.engine.torch_shim.twins import may_view

RELABELS = frozenset({torch.ops.aten.detach_.default})
"""Marked as writers, but the data stays as it is."""


def memory_of(node: Node) -> StorageKey | None:
    """The memory behind a node; None where it is no tensor."""
    value = node.meta.get("val")
    return storage_key(value) if isinstance(value, torch.Tensor) else None


def writers(graph: Graph) -> dict[StorageKey, list[Node]]:
    """The calls that write in place, by the memory that they write."""
    found: dict[StorageKey, list[Node]] = {}
    for node in graph.nodes:
        if node.op != "call_function" or node.target in RELABELS:
            continue
        for argument in mutated_arguments(node):
            memory = memory_of(argument)
            if memory is not None:
                found.setdefault(memory, []).append(node)
    return found


def sharing(graph: Graph) -> dict[StorageKey, list[Node]]:
    """The nodes of each memory, in order."""
    found: dict[StorageKey, list[Node]] = {}
    for node in graph.nodes:
        memory = memory_of(node) if node.op != "output" else None
        if memory is not None:
            found.setdefault(memory, []).append(node)
    return found


def readers(nodes: Iterable[Node]) -> list[Node]:
    """Everybody who takes one of these nodes, each once."""
    return list(dict.fromkeys(user for node in nodes for user in node.users))


def refresh(graph: Graph) -> None:
    """Make views share the memory of what they read now.

    A pass that lets a view read another tensor leaves it with a fake value over the old memory;
    whoever asks about memory afterwards would take the two for strangers.
    """
    for node in graph.nodes:
        if node.op != "call_function" or not node.args:
            continue
        source = node.args[0]
        if node.target is operator.getitem and isinstance(source, Node):
            node.meta["val"] = source.meta["val"][node.args[1]]
        elif may_view(node.target) and _strange(node):
            again = fake_value(node)
            if _memories(again) & _memories([one.meta.get("val") for one in node.all_input_nodes]):
                node.meta["val"] = again


def _strange(node: Node) -> bool:
    """Whether a view shares memory with nothing that it reads."""
    sources = [one.meta.get("val") for one in node.all_input_nodes]
    return not _memories(node.meta["val"]) & _memories(sources)


def _memories(values: Any) -> frozenset[StorageKey]:
    found = values if isinstance(values, (list, tuple)) else [values]
    return frozenset(storage_key(one) for one in found if isinstance(one, torch.Tensor))
