"""Descriptions of captured graphs, and three of them as one node table."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.draft import UNSUPPORTED, Draft, read_draft
from vcc.engine.graphs.recorder.merge import merge, merge_parts
from vcc.engine.graphs.recorder.parts import Part
from vcc.engine.graphs.recorder.places import Move, Places
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import (
    NodeKind,
    NodeTable,
    ParamKind,
    Region,
    RegionKind,
    SegmentKind,
)

SPACE = Move(0, 0x6123_4560_0000, 0x7456_7890_0000, 4096)
DIGEST = "ab" * 32


def digest_of(number: int) -> str:
    return DIGEST


def kernel(*words: int, function: str = "add", **fields: Any) -> dict[str, Any]:
    return {
        "kind": "kernel",
        "function": function,
        "cubin": 0,
        "grid": [4, 1, 1],
        "block": [128, 1, 1],
        "shared": 0,
        "parameters": b"".join(struct.pack("<Q", word) for word in words).hex(),
        "spans": [[8 * i, 8] for i in range(len(words))],
        "live": [],
        "host": [],
        "attributes": [],
        "max_dynamic": 0,
        "carveout": -1,
        "non_portable": 0,
    } | fields


def memset(target: int, **fields: int) -> dict[str, Any]:
    plain = {"pitch": 0, "value": 0, "element": 4, "width": 8, "height": 1}
    return {"kind": "memset", "target": target} | plain | fields


def memcpy(source: int, target: int, **fields: int) -> dict[str, Any]:
    plain = {"bytes": 64, "source_memory": 2, "target_memory": 2, "plain": 1}
    return {"kind": "memcpy", "source": source, "target": target} | plain | fields


def draft(nodes: list[dict[str, Any]], edges: list[list[int]] | None = None) -> Draft:
    chain = [[i, i + 1, 0, 0, 0] for i in range(len(nodes) - 1)]
    return read_draft(
        json.dumps({"nodes": nodes, "edges": chain if edges is None else edges}), digest_of
    )


def at(make: Any) -> tuple[Draft, Draft, Draft]:
    """One graph at both places."""
    first, second = make(SPACE.first), make(SPACE.second)
    return draft(first), draft(second), draft(first)


def table(merged: Any) -> NodeTable:
    return NodeTable(
        regions=(Region(RegionKind.WORKSPACE, SPACE.size),),
        cubins=tuple((digest, 100) for digest in merged.digests),
        kernels=merged.kernels,
        nodes=merged.nodes,
        segments=merged.segments,
        edges=merged.edges,
    )


def test_a_graph_becomes_a_table_without_addresses() -> None:
    drafts = at(
        lambda base: [
            kernel(base + 8, 5),
            memset(base + 64),
            memcpy(base, base + 128),
            {"kind": "empty"},
        ]
    )
    merged = merge("recorded", *drafts, [SPACE])
    found = decode(encode(table(merged)))
    assert [node.kind for node in found.nodes] == [
        NodeKind.KERNEL,
        NodeKind.MEMSET,
        NodeKind.MEMCPY,
        NodeKind.EMPTY,
    ]
    data, pointer = found.nodes[0].params
    assert (data.kind, data.value) == (ParamKind.BYTES, struct.pack("<QQ", 0, 5))
    assert (pointer.offset, pointer.region, pointer.value) == (0, 0, 8)
    assert found.nodes[1].params[0].value == 64
    assert [p.value for p in found.nodes[2].params] == [128, 0, 64]
    assert found.edges == ()
    assert merged.pointers == 4


def test_equal_kernels_are_one_record() -> None:
    drafts = at(lambda base: [kernel(base), kernel(base + 8), kernel(base, function="mul")])
    merged = merge("recorded", *drafts, [SPACE])
    assert [one.function for one in merged.kernels] == ["add", "mul"]
    assert [node.target for node in merged.nodes] == [0, 0, 1]


@pytest.mark.parametrize(("one_process", "kept"), [(True, False), (False, True)])
def test_an_address_of_the_process_is_dead_where_one_process_captured(
    one_process: bool, kept: bool
) -> None:
    """Captures of several processes tell by their bytes: flags may lie over an old address."""
    word = 0x7FFE_1234_0101
    drafts = [draft([kernel(word, 5, host=[0])]) for _ in range(3)]
    merged = merge("recorded", *drafts, [SPACE], one_process=one_process)
    (data,) = merged.nodes[0].params
    assert data.value == struct.pack("<QQ", word if kept else 0, 5)


def test_edges_that_are_no_chain_are_kept_with_their_data() -> None:
    edges = [[0, 1, 1, 1, 0], [0, 2, 0, 0, 0]]
    nodes = [kernel(1), kernel(2), kernel(3)]
    drafts = [draft(nodes, edges) for _ in range(3)]
    merged = merge("recorded", *drafts, [SPACE])
    assert [(e.source, e.target, e.type, e.source_port) for e in merged.edges] == [
        (0, 1, 1, 1),
        (0, 2, 0, 0),
    ]


def test_nodes_are_put_in_an_order_that_edges_follow() -> None:
    found = draft([kernel(1, function="last"), kernel(2, function="first")], [[1, 0, 0, 0, 0]])
    assert [node.function for node in found.nodes] == ["first", "last"]
    assert found.edges == ((0, 1, 0, 0, 0),)


@pytest.mark.parametrize("kind", sorted(UNSUPPORTED))
def test_nodes_without_a_place_in_a_table_are_named(kind: int) -> None:
    with pytest.raises(GraphError, match="node 1") as caught:
        draft([kernel(1), {"kind": "other", "type": kind}])
    assert UNSUPPORTED[kind][0] in caught.value.what


def test_a_kind_of_tomorrow_is_named_by_its_number() -> None:
    with pytest.raises(GraphError, match="kind 99"):
        draft([{"kind": "other", "type": 99}])


@pytest.mark.parametrize("fields", [{"source_memory": 1}, {"target_memory": 1}, {"plain": 0}])
def test_copies_with_the_host_and_of_rows_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(GraphError, match="a copy"):
        draft([memcpy(0, 0, **fields)])


@pytest.mark.parametrize(("id", "why"), [(1, "access policy"), (13, "on the device may update")])
def test_attributes_of_one_process_are_refused(id: int, why: str) -> None:
    with pytest.raises(GraphError, match=why) as caught:
        draft([kernel(1, attributes=[[id, "01" * 64]])])
    assert "node 0 (add)" in caught.value.what


def test_a_refusal_names_node_kernel_and_offset() -> None:
    drafts = at(lambda base: [kernel(1), kernel(0, base >> 20 & 0xFFF, function="peeled")])
    with pytest.raises(GraphError, match="byte 8") as caught:
        merge("recorded", *drafts, [SPACE])
    assert "node 1 (peeled)" in caught.value.what


def test_memory_outside_the_regions_is_refused() -> None:
    with pytest.raises(GraphError, match="not in a recorded region"):
        merge("recorded", *(draft([memset(0x7000_0000_0000)]) for _ in range(3)), [SPACE])


@pytest.mark.parametrize("height", [1, 2])
def test_rows_of_a_fill_lie_equally_far_apart_in_all_captures(height: int) -> None:
    """Of one row the distance is what stood there before."""
    one, other = (
        draft([memset(base, height=height, pitch=pitch)])
        for base, pitch in ((SPACE.first, 64), (SPACE.second, 128))
    )
    if height == 1:
        (node,) = merge("recorded", one, other, one, [SPACE]).nodes
        assert node.params[-1].value == 0
        return
    with pytest.raises(GraphError, match="two captures of one graph differ"):
        merge("recorded", one, other, one, [SPACE])


@pytest.mark.parametrize(
    "other",
    [
        [kernel(1, function="mul")],
        [kernel(1, grid=[5, 1, 1])],
        [kernel(1, attributes=[[4, "01" * 64]])],
        [kernel(1, attributes=[[2, "01" + "00" * 63]])],
        [kernel(1, shared=1024)],
        [kernel(1), kernel(1)],
    ],
    ids=["function", "grid", "clusters", "cooperative", "shared", "nodes"],
)
def test_captures_of_two_graphs_are_refused(other: list[dict[str, Any]]) -> None:
    one = draft([kernel(1)])
    with pytest.raises(GraphError, match="two captures of one graph differ"):
        merge("recorded", one, draft(other), one, [SPACE])


def part(kind: SegmentKind, nodes: list[dict[str, Any]], edges: list[list[int]]) -> Part[Any]:
    made = draft(nodes, edges)
    return Part(kind, kind.name.lower(), (made, made, made))


def test_parts_run_one_after_another_whatever_their_own_edges_are() -> None:
    """A fork, then two nodes beside each other: nothing of a part begins before all before it."""
    fork = part(SegmentKind.PIECE, [EMPTY] * 3, [[0, 1, 0, 0, 0], [0, 2, 1, 1, 0]])
    beside = part(SegmentKind.OP, [EMPTY] * 2, [])
    chain = part(SegmentKind.PIECE, [EMPTY] * 2, [[0, 1, 0, 0, 0]])
    found = merge_parts([fork, beside, chain], Places([SPACE]))
    assert [(one.kind, one.nodes) for one in found.segments] == [
        (SegmentKind.PIECE, 3),
        (SegmentKind.OP, 2),
        (SegmentKind.PIECE, 2),
    ]
    assert [(edge.source, edge.target, edge.type, edge.source_port) for edge in found.edges] == [
        *((0, 1, 0, 0), (0, 2, 1, 1)),
        *((1, 3, 0, 0), (1, 4, 0, 0), (2, 3, 0, 0), (2, 4, 0, 0)),
        *((3, 5, 0, 0), (4, 5, 0, 0), (5, 6, 0, 0)),
    ]
    assert merge_parts([chain, chain], Places([SPACE])).edges == ()


EMPTY = {"kind": "empty"}
