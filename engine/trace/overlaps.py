"""Operators of ours that read what they write: kernels run over rows in any order, so results vary.

A fake tensor knows whose memory it looks at; a view shares that of what it views.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import Graph, Node

from vcc.cache.errors import CompileError
from vcc.engine.torch_shim.nodes import (
    StorageKey,
    argument_names,
    call_arguments,
    mutated_arguments,
    overload_name,
    storage_key,
)

NAMESPACE = "vcc::"

ALLOWED = frozenset({("vcc::paged_attention", "q")})
"""Arguments that lie under a result by contract: a row of queries is read before it is written."""


def refuse_overlaps(graph: Graph) -> None:
    """Look at every call of an operator of ours.

    Raises:
        CompileError: one reads an argument in the memory of another one that it writes.
    """
    for node in graph.nodes:
        name = overload_name(node.target) if node.op == "call_function" else None
        if name and name.startswith(NAMESPACE):
            for found in _overlaps(node, name.partition(".")[0]):
                raise found


def _overlaps(node: Node, name: str) -> Iterator[CompileError]:
    written = {id(one): one for one in mutated_arguments(node)}
    memories = {_memory(one): one for one in written.values()}
    for label, value in zip(argument_names(node.target), call_arguments(node), strict=False):
        if not isinstance(value, Node) or id(value) in written or (name, label) in ALLOWED:
            continue
        memory = _memory(value)
        if memory is not None and memory in memories:
            yield CompileError(
                f"{name} writes into memory that it reads",
                f"its {label} ({value.name}) lies in the memory of {memories[memory].name}",
                f"hand it a copy: {label}.clone()",
            )


def _memory(node: Node) -> StorageKey | None:
    value = node.meta.get("val")
    return storage_key(value) if isinstance(value, torch.Tensor) else None
