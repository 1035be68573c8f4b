"""A captured graph as csrc/recorder/graph.h describes it, checked and typed.

Kinds of nodes that a node table cannot hold are refused here by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from vcc.cache.errors import GraphError

Three = tuple[int, int, int]

UNSUPPORTED: Mapping[int, tuple[str, str]] = {
    3: ("a host callback", "it would run code of the process that was recorded"),
    4: ("a child graph", "only flat graphs are recorded"),
    6: ("a wait for an event", "events belong to the process that was recorded"),
    7: ("a record of an event", "events belong to the process that was recorded"),
    8: ("a signal to an external semaphore", "it belongs to the process that was recorded"),
    9: ("a wait for an external semaphore", "it belongs to the process that was recorded"),
    10: ("a memory allocation", "memory must be allocated before the capture"),
    11: ("a memory release", "memory must outlive the graph"),
    12: ("a batch of memory operations", "their addresses cannot be moved"),
    13: ("a conditional graph", "only flat graphs are recorded"),
}
"""CUgraphNodeType that no node table holds: what it is, and why it is refused."""

HINT = "take it out of the model's forward, or use --compile vcc where the model exports"

FORBIDDEN: Mapping[int, tuple[str, str]] = {
    1: (
        "it sets an access policy window, which holds an address",
        "leave the stream's L2 policy alone while recording",
    ),
    13: (
        "kernels on the device may update it, by a handle of the process that was recorded",
        "launch it without CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE",
    ),
}
"""CUlaunchAttributeID that no node table holds: why it is refused, and what to do."""

HOST_MEMORY = 1
"""CU_MEMORYTYPE_HOST."""


@dataclass(frozen=True, slots=True)
class KernelDraft:
    """A launch; `cubin` is the SHA-256 in hex of the code, attributes are (id, 64 bytes).

    `live` and `host` are offsets of words in the parameters that the driver, and the process, knew
    as addresses.
    """

    function: str
    cubin: str
    grid: Three
    block: Three
    shared: int
    parameters: bytes
    live: frozenset[int]
    host: frozenset[int]
    attributes: tuple[tuple[int, bytes], ...]
    carveout: int
    non_portable: bool


@dataclass(frozen=True, slots=True)
class MemsetDraft:
    """`height` rows of `width` elements set to `value`; rows lie `pitch` bytes apart."""

    target: int
    pitch: int
    value: int
    element: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class MemcpyDraft:
    """A copy of one run of bytes within the device."""

    source: int
    target: int
    bytes: int


@dataclass(frozen=True, slots=True)
class EmptyDraft:
    """A node that only orders others."""


NodeDraft = KernelDraft | MemsetDraft | MemcpyDraft | EmptyDraft


@dataclass(frozen=True, slots=True)
class Draft:
    """Nodes in an order that every edge follows; edges are (from, to, type, from_port, to_port)."""

    nodes: tuple[NodeDraft, ...]
    edges: tuple[tuple[int, int, int, int, int], ...]


DigestOf: TypeAlias = Callable[[Any], str]
"""From what a description calls a cubin (its number, or its digest already) to the digest."""


def read_draft(text: str, digest_of: DigestOf = str) -> Draft:
    """Read the description of a captured graph.

    Args:
        text: JSON of the native library.
        digest_of: the SHA-256 in hex of a cubin; of a stored description, the name itself.

    Raises:
        GraphError: a node that a table cannot hold, named with its number and kind.
    """
    found = json.loads(text)
    nodes = [
        _READERS[raw["kind"]](index, raw, digest_of) for index, raw in enumerate(found["nodes"])
    ]
    return _in_order(nodes, [tuple(edge) for edge in found["edges"]])


def where(index: int, node: NodeDraft) -> str:
    """A node's name in messages."""
    if isinstance(node, KernelDraft):
        return f"node {index} ({node.function[:200]})"
    return f"node {index} ({type(node).__name__.removesuffix('Draft').lower()})"


def _kernel(index: int, raw: Mapping[str, Any], digest_of: DigestOf) -> NodeDraft:
    attributes = tuple((int(id), bytes.fromhex(value)) for id, value in raw["attributes"])
    draft = KernelDraft(
        function=raw["function"],
        cubin=digest_of(raw["cubin"]),
        grid=_three(raw["grid"]),
        block=_three(raw["block"]),
        shared=raw["shared"],
        parameters=bytes.fromhex(raw["parameters"]),
        live=frozenset(raw["live"]),
        host=frozenset(raw["host"]),
        attributes=attributes,
        carveout=raw["carveout"],
        non_portable=bool(raw["non_portable"]),
    )
    for why, hint in (FORBIDDEN[id] for id, _ in attributes if id in FORBIDDEN):
        raise GraphError(f"{where(index, draft)} cannot be stored", why, hint)
    return draft


def _memset(index: int, raw: Mapping[str, Any], digest_of: DigestOf) -> NodeDraft:
    fields = ("target", "pitch", "value", "element", "width", "height")
    return MemsetDraft(*(raw[name] for name in fields))


def _memcpy(index: int, raw: Mapping[str, Any], digest_of: DigestOf) -> NodeDraft:
    memories = (raw["source_memory"], raw["target_memory"])
    if not raw["plain"] or HOST_MEMORY in memories:
        why = "it reads or writes host memory" if HOST_MEMORY in memories else "it copies rows"
        raise GraphError(f"node {index} (a copy) cannot be stored", why, HINT)
    return MemcpyDraft(raw["source"], raw["target"], raw["bytes"])


def _empty(index: int, raw: Mapping[str, Any], digest_of: DigestOf) -> NodeDraft:
    return EmptyDraft()


def _other(index: int, raw: Mapping[str, Any], digest_of: DigestOf) -> NodeDraft:
    kind = raw["type"]
    what, why = UNSUPPORTED.get(kind, (f"of kind {kind}", "this kind is not known"))
    raise GraphError(f"node {index} of the recorded graph is {what}", why, HINT)


_READERS: Mapping[str, Callable[[int, Mapping[str, Any], DigestOf], NodeDraft]] = {
    "kernel": _kernel,
    "memset": _memset,
    "memcpy": _memcpy,
    "empty": _empty,
    "other": _other,
}


def _three(values: Sequence[int]) -> Three:
    x, y, z = values
    return x, y, z


def _in_order(nodes: Sequence[NodeDraft], edges: Sequence[tuple[int, ...]]) -> Draft:
    """Nodes sorted so that edges lead forward; the order is kept where it already is."""
    waiting = [0] * len(nodes)
    after: list[list[int]] = [[] for _ in nodes]
    for source, target, *_ in edges:
        waiting[target] += 1
        after[source].append(target)
    ready = sorted((i for i, count in enumerate(waiting) if count == 0), reverse=True)
    order: list[int] = []
    while ready:
        index = ready.pop()
        order.append(index)
        for target in after[index]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
        ready.sort(reverse=True)
    place = {index: at for at, index in enumerate(order)}
    moved = sorted((place[e[0]], place[e[1]], e[2], e[3], e[4]) for e in edges)
    return Draft(tuple(nodes[index] for index in order), tuple(moved))
