"""Every rule of the node table's reader refuses what breaks it, and says so."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.table_damage import damaged
from support.tables import IO, WORKSPACE, every_kind, pointer

from vcc.cache.errors import CompileError, IntegrityError
from vcc.engine.graphs.table import check, check_nodes
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import (
    NONE,
    READ,
    WRITE,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Segment,
    SegmentKind,
)

CASES = damaged()


@pytest.mark.parametrize("name", CASES)
def test_one_wrong_field_is_refused_by_name(name: str) -> None:
    data, reason = CASES[name]
    with pytest.raises(IntegrityError, match=re.escape(reason)) as caught:
        decode(data)
    assert "build or record" in caught.value.hint


def test_every_reason_is_reached() -> None:
    found = set()
    for data, _ in CASES.values():
        with pytest.raises(IntegrityError) as caught:
            decode(data)
        found.add(caught.value.why.split(": ", 1)[1])
    for module in (check, check_nodes):
        text = Path(module.__file__).read_text()
        assert set(re.findall(r'need\([^"]*?"([^"]+)"\)', text)) <= found


def only(node: Node) -> NodeTable:
    """One node among the regions and tensors of the usual table."""
    return replace(every_kind(), nodes=(node,), segments=(Segment(SegmentKind.OP, "op", 1),))


def copy(length: object, at: object = 0) -> Node:
    ends = (pointer(0, WORKSPACE, 0, WRITE), pointer(8, IO, at, READ))
    return Node(NodeKind.MEMCPY, params=(*ends, Param(ParamKind.I64, 0, 16, NONE, length)))


def fill(item: int, width: object, height: object, pitch: object) -> Node:
    numbers = ((ParamKind.I32, 8, 0), (ParamKind.I32, 12, item), (ParamKind.I64, 16, width))
    numbers += ((ParamKind.I64, 24, height), (ParamKind.I64, 32, pitch))
    params = tuple(Param(kind, 0, offset, NONE, value) for kind, offset, value in numbers)
    return Node(NodeKind.MEMSET, params=(pointer(0, WORKSPACE, 0, WRITE), *params))


MEBIBYTE = 1 << 20
REACHES = [
    (copy(2048), ""),
    (copy(2049), "nodes[0]: reads or writes outside a region"),
    (copy(["*", "T", 1024], 1024), ""),
    (copy(["*", "T", 1024], 1025), "nodes[0]: reads or writes outside a region"),
    (copy(1, 2049), "params[1]: points outside its region"),
    (fill(4, 1, MEBIBYTE // 8, 8), ""),
    (fill(4, 2, MEBIBYTE // 8, 8), ""),
    (fill(4, 3, MEBIBYTE // 8, 8), "params[5]: rows overlap"),
    (fill(4, 2, MEBIBYTE // 8 + 1, 8), "nodes[0]: reads or writes outside a region"),
    (fill(1, MEBIBYTE, 1, 0), ""),
    (fill(1, MEBIBYTE + 1, 1, 0), "nodes[0]: reads or writes outside a region"),
    (fill(2, 2**40, 0, 2**41), ""),
]


@pytest.mark.parametrize(("node", "reason"), REACHES)
def test_copies_and_fills_stay_inside_their_regions(node: Node, reason: str) -> None:
    table = only(node)
    if not reason:
        assert decode(encode(table)) == table
        return
    with pytest.raises(CompileError, match=re.escape(reason)):
        encode(table)


def test_a_tensor_lies_at_a_multiple_of_its_element() -> None:
    table = every_kind()
    odd = replace(table.tensors[2], offset=2)
    with pytest.raises(CompileError, match=r"tensors\[2\]: not at a multiple"):
        encode(replace(table, tensors=(*table.tensors[:2], odd, *table.tensors[3:])))


def shared(doublings: int) -> object:
    expr: object = "T"
    for _ in range(doublings):
        expr = ["min", expr, expr]
    return expr


def test_sharing_cannot_make_an_expression_explode() -> None:
    """Ten records that double each other are a thousand terms written out."""
    table = every_kind()
    with pytest.raises(CompileError, match="more than 1024 terms"):
        encode(replace(table, gemms=(replace(table.gemms[0], m=shared(10)), table.gemms[1])))
