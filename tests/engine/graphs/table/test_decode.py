"""The node table's reader: what was written comes back, everything else is refused by name."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.tables import every_kind, recorded, tables

from vcc.cache.errors import CompileError, IntegrityError
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.layout import ENTRY, HEADER, SHAPES, Section
from vcc.engine.graphs.table.types import NodeTable, Segment, SegmentKind, Symbol

GOLDEN = Path(__file__).parents[3] / "csrc/corpus/table/every_kind"
"""Regenerate: ``python tests/support/table_files.py`` (a change of the format needs a version)."""

WHOLE = encode(every_kind())
FRONT = HEADER.size + ENTRY.size * len(Section)


def refused(data: bytes) -> str:
    with pytest.raises(IntegrityError) as caught:
        decode(data)
    assert caught.value.what == "node table refused"
    return caught.value.why


@pytest.mark.parametrize("table", [every_kind(), recorded(), NodeTable()], ids=["all", "one", "no"])
def test_what_was_written_comes_back(table: NodeTable) -> None:
    assert decode(encode(table)) == table


@given(tables())
@settings(max_examples=60, deadline=None)
def test_any_table_comes_back_and_has_one_spelling(table: NodeTable) -> None:
    data = encode(table)
    again = decode(data)
    assert again == table
    assert encode(again) == data


def test_the_bytes_are_those_of_the_golden_file() -> None:
    assert encode(every_kind()) == GOLDEN.read_bytes()
    assert decode(memoryview(GOLDEN.read_bytes())) == every_kind()


def test_more_than_two_operands_fold_to_the_left() -> None:
    table = replace(NodeTable(symbols=(Symbol("T", 1, 2),)), gemms=every_kind().gemms[:1])
    many = replace(table, gemms=(replace(table.gemms[0], m=["+", "T", 1, 2]),))
    two = replace(table, gemms=(replace(table.gemms[0], m=["+", ["+", "T", 1], 2]),))
    assert decode(encode(many)) == two


UNFIT = [
    {"symbols": (Symbol("T", 2, 1),)},
    {"symbols": (Symbol("T", 0, 2**60),)},
    {"cubins": (("AB" * 32, 1),)},
    {"cubins": (("ab", 1),)},
    {"gemms": (replace(every_kind().gemms[0], m=["-", "T", 1]),)},
    {"gemms": (replace(every_kind().gemms[0], m=["+", "T", -1]),)},
    {"gemms": (replace(every_kind().gemms[0], m="X"),)},
    {"gemms": (replace(every_kind().gemms[0], m=["//", "T", "B"]),)},
    {"gemms": (replace(every_kind().gemms[0], m=["+", "T"]),)},
    {"gemms": (replace(every_kind().gemms[0], dtype="complex64"),)},
    {"gemms": (replace(every_kind().gemms[0], n=2**32),)},
    {"segments": (Segment(SegmentKind.OP, "\ud800", 0),)},
    {"segments": (Segment(SegmentKind.OP, "x" * 513, 0),)},
]


@pytest.mark.parametrize("changed", UNFIT, ids=str)
def test_what_the_reader_would_refuse_is_not_written(changed: dict[str, object]) -> None:
    with pytest.raises(CompileError, match="cannot write the node table"):
        encode(replace(every_kind(), **changed))  # type: ignore[arg-type]


def test_every_byte_of_the_front_counts() -> None:
    for place in range(FRONT):
        for flip in (0x01, 0x80, 0xFF):
            data = bytearray(WHOLE)
            data[place] ^= flip
            refused(bytes(data))


def test_a_shorter_or_longer_file_is_refused() -> None:
    for length in (*range(0, len(WHOLE), 7), len(WHOLE) - 1):
        refused(WHOLE[:length])
    refused(WHOLE + b"\0")


@pytest.mark.parametrize("section", Section)
@pytest.mark.parametrize("count", [2**31, 2**61, 2**64 - 1])
def test_huge_counts_are_refused_at_once(section: Section, count: int) -> None:
    data = bytearray(WHOLE)
    place = HEADER.size + ENTRY.size * section
    ENTRY.pack_into(data, place, section, SHAPES[section].record.size, FRONT, count)
    assert section.name.lower() in refused(bytes(data))


def test_mutated_tables_are_refused_or_valid() -> None:
    """Never another error; what still passes can be written again."""
    draw, passed, places = random.Random(7), 0, set[str]()
    for _ in range(1500):
        data = bytearray(draw.choice([WHOLE, encode(recorded())]))
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(FRONT, len(data))] = draw.choice([0, 1, 2, 8, 127, 255])
        try:
            table = decode(bytes(data))
        except IntegrityError as error:
            places.add(error.why.split(":")[0].split("[")[0])
            continue
        passed += 1
        assert decode(encode(table)) == table
    assert passed
    assert places <= {section.name.lower() for section in Section}
