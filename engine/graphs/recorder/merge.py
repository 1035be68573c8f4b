"""Three captures of one graph become the nodes of a node table, free of addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.draft import (
    Draft,
    EmptyDraft,
    KernelDraft,
    MemcpyDraft,
    MemsetDraft,
    where,
)
from vcc.engine.graphs.recorder.parts import Part
from vcc.engine.graphs.recorder.places import Move, Places
from vcc.engine.graphs.recorder.words import WORD, Captured, relocate
from vcc.engine.graphs.table.types import (
    NON_PORTABLE_CLUSTER,
    NONE,
    READ,
    WRITE,
    Edge,
    Kernel,
    Node,
    NodeKind,
    Param,
    ParamKind,
    Segment,
    SegmentKind,
)


@dataclass(frozen=True, slots=True)
class Merged:
    """The part of a node table that comes from captures.

    Attributes:
        kernels, nodes, edges, segments: as in `NodeTable`; pointers name regions by index.
        digests: SHA-256 in hex of the cubins that the kernels need.
        pointers: relocations in all.
        noise: bytes that nobody wrote and that were zeroed.
        unsteady: words among them that a replay must show to be dead, with node, kernel, offset.
    """

    kernels: tuple[Kernel, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    segments: tuple[Segment, ...]
    digests: tuple[str, ...]
    pointers: int
    noise: int
    unsteady: tuple[str, ...] = ()


@dataclass(slots=True)
class _Making:
    places: Places
    one_process: bool
    kernels: dict[Kernel, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    pointers: int = 0
    noise: int = 0
    unsteady: list[str] = field(default_factory=list)


Triple = tuple[Any, Any, Any]


def merge(
    name: str,
    first: Draft,
    second: Draft,
    again: Draft,
    moves: Sequence[Move],
    *,
    one_process: bool = False,
) -> Merged:
    """Relocate a graph.

    Args:
        name: of the one segment that the nodes become.
        first, second, again: captures with the regions at `Move.first`, `Move.second`, and
            `Move.first` once more, in processes of their own or with other bytes in dead memory.
        moves: the regions, with the index each has in the table.
        one_process: all three were captured in one process. What is an address of it in each is
            then dead, though it stays: matrix products read no memory of the host. Of captures in
            several processes such a word may be half an address and half a number.

    Raises:
        GraphError: the captures are not of one graph, or hold what cannot be moved; the node, the
            kernel and the offset are named.
    """
    part = Part(SegmentKind.PIECE, name, (first, second, again))
    return merge_parts((part,), Places(moves), one_process=one_process)


def merge_parts(
    parts: Sequence[Part[tuple[Draft, Draft, Draft]]],
    places: Places,
    *,
    one_process: bool = False,
) -> Merged:
    """Relocate the graphs of a step that run one after another; arguments and errors as `merge`.

    Args:
        parts: each with its three captures; it becomes a segment.
        places: the regions, and what each capture knew of other addresses.
        one_process: see `merge`.
    """
    making, segments = _Making(places, one_process), []
    for part in parts:
        before = len(making.nodes)
        _add(making, part.held)
        segments.append(Segment(part.kind, part.name, len(making.nodes) - before))
    kernels = tuple(making.kernels)
    return Merged(
        kernels=kernels,
        nodes=tuple(making.nodes),
        edges=_edges([part.held[0] for part in parts]),
        segments=tuple(segments),
        digests=tuple(dict.fromkeys(kernel.cubin for kernel in kernels)),
        pointers=making.pointers,
        noise=making.noise,
        unsteady=tuple(making.unsteady),
    )


def _add(making: _Making, drafts: tuple[Draft, Draft, Draft]) -> None:
    """The nodes of one graph behind those that there are."""
    first, second, again = drafts
    if (
        len({len(draft.nodes) for draft in drafts}) != 1
        or not first.edges == second.edges == again.edges
    ):
        raise GraphError(
            "two captures of one graph differ",
            f"they have {', '.join(str(len(draft.nodes)) for draft in drafts)} nodes",
            "the model's forward must do the same in every run: no random choices, no state",
        )
    for triple in zip(*(draft.nodes for draft in drafts), strict=True):
        index = len(making.nodes)
        _check_same(index, triple)
        making.nodes.append(_MERGERS[type(triple[0])](making, where(index, triple[0]), triple))


def _edges(drafts: Sequence[Draft]) -> tuple[Edge, ...]:
    """Edges of graphs that run one after another: all of one end before the next one begins."""
    if all(_is_chain(draft) for draft in drafts):
        return ()
    found: list[Edge] = []
    ends: list[int] = []
    start = 0
    for draft in drafts:
        numbers = range(start, start + len(draft.nodes))
        own = [Edge(edge[0] + start, edge[1] + start, *edge[2:]) for edge in draft.edges]
        begin = sorted(set(numbers) - {edge.target for edge in own})
        found += [Edge(end, first) for end in ends for first in begin]
        found += own
        ends = sorted(set(numbers) - {edge.source for edge in own})
        start = numbers.stop
    return tuple(sorted(found, key=lambda edge: (edge.source, edge.target)))


def _is_chain(draft: Draft) -> bool:
    """Whether the edges say no more than that the nodes run one after another."""
    chain = tuple((i, i + 1, 0, 0, 0) for i in range(len(draft.nodes) - 1))
    return draft.edges == chain


def _check_same(index: int, triple: Triple) -> None:
    plain = [_without_addresses(node) for node in triple]
    if plain[0] == plain[1] == plain[2]:
        return
    names = ", ".join(dict.fromkeys(where(index, node) for node in triple))
    raise GraphError(
        "two captures of one graph differ",
        f"in {names}: code, sizes or launch attributes are not the same",
        "the model's forward must do the same in every run",
    )


def _without_addresses(node: Any) -> Any:
    cleared = _CLEARED.get(type(node), {})
    if isinstance(node, MemsetDraft) and node.height <= 1:
        cleared = cleared | {"pitch": 0}  # nobody wrote it
    return replace(node, **cleared)


_CLEARED: Mapping[type, dict[str, Any]] = {
    KernelDraft: {"parameters": b"", "live": frozenset(), "host": frozenset()},
    MemsetDraft: {"target": 0},
    MemcpyDraft: {"source": 0, "target": 0},
}


def _kernel(making: _Making, name: str, triple: Triple) -> Node:
    node = triple[0]
    first, second, again = (draft.parameters for draft in triple)
    live = (triple[0].live, triple[1].live, triple[2].live)
    host = frozenset.intersection(*(draft.host for draft in triple))
    captured = Captured(first, second, again, live, host, making.one_process)
    block = relocate(name, captured, making.places)
    making.pointers += len(block.pointers)
    making.noise += block.noise
    making.unsteady += (f"{name}, {text}" for text in block.unsteady)
    kernel = Kernel(
        cubin=node.cubin,
        function=node.function,
        block=node.block,
        shared=node.shared,
        param_bytes=len(block.block),
        attributes=node.attributes,
        carveout=node.carveout,
        flags=NON_PORTABLE_CLUSTER if node.non_portable else 0,
    )
    target = making.kernels.setdefault(kernel, len(making.kernels))
    data = (Param(ParamKind.BYTES, 0, 0, NONE, block.block),) if any(block.block) else ()
    pointers = (_pointer(at, region, offset) for at, region, offset in block.pointers)
    return Node(NodeKind.KERNEL, target=target, grid=node.grid, params=(*data, *pointers))


def _memset(making: _Making, name: str, triple: Triple) -> Node:
    node = triple[0]
    place = _address(making, name, [draft.target for draft in triple])
    pitch = node.pitch if node.height > 1 else 0
    numbers = (
        *((ParamKind.I32, 8, node.value), (ParamKind.I32, 12, node.element)),
        *((ParamKind.I64, 16, node.width), (ParamKind.I64, 24, node.height)),
        (ParamKind.I64, 32, pitch),
    )
    params = (Param(kind, 0, at, NONE, value) for kind, at, value in numbers)
    return Node(NodeKind.MEMSET, params=(_pointer(0, *place, access=WRITE), *params))


def _memcpy(making: _Making, name: str, triple: Triple) -> Node:
    target = _address(making, name, [draft.target for draft in triple])
    source = _address(making, name, [draft.source for draft in triple])
    return Node(
        NodeKind.MEMCPY,
        params=(
            _pointer(0, *target, access=WRITE),
            _pointer(8, *source, access=READ),
            Param(ParamKind.I64, 0, 16, NONE, triple[0].bytes),
        ),
    )


def _empty(making: _Making, name: str, triple: Triple) -> Node:
    return Node(NodeKind.EMPTY)


def _address(making: _Making, name: str, addresses: Sequence[int]) -> tuple[int, int]:
    words = [address.to_bytes(WORD, "little") for address in addresses]
    found = relocate(name, Captured(words[0], words[1], words[2]), making.places).pointers
    if not found:
        raise GraphError(
            f"{name} cannot be stored",
            f"address {addresses[0]:#x} is not in a recorded region",
            "keep what the model reads and writes in tensors of its own",
        )
    making.pointers += 1
    return found[0][1:]


def _pointer(at: int, region: int, offset: int, access: int = READ | WRITE) -> Param:
    return Param(ParamKind.POINTER, access, at, region, offset)


_MERGERS: Mapping[type, Callable[[_Making, str, Triple], Node]] = {
    KernelDraft: _kernel,
    MemsetDraft: _memset,
    MemcpyDraft: _memcpy,
    EmptyDraft: _empty,
}
