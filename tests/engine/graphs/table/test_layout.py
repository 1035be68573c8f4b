"""The layout of the node table: the page, the Python side and the C++ header say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vcc.engine.graphs.expr import OPERATORS
from vcc.engine.graphs.table import layout
from vcc.engine.graphs.table.layout import DTYPES, ENTRY, HEADER, OPS, SHAPES, Section
from vcc.engine.graphs.table.types import NodeKind, ParamKind, RegionKind, Role, SegmentKind

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "format.md").read_text()
HEADER_FILE = (ROOT / "csrc" / "table" / "format.h").read_text()


def test_the_front_has_its_documented_size() -> None:
    assert (HEADER.size, ENTRY.size, len(Section)) == (40, 24, 16)


@pytest.mark.parametrize("section", Section)
def test_the_page_has_the_size_of_every_record(section: Section) -> None:
    name, size = section.name.lower(), SHAPES[section].record.size
    assert re.search(rf"^\| {section:d} \| {name} \| {size}[ ,]", PAGE, re.MULTILINE)


@pytest.mark.parametrize("codes", [RegionKind, Role, NodeKind, SegmentKind, ParamKind])
def test_the_page_names_every_code(codes: type) -> None:
    for code in codes:  # type: ignore[attr-defined]
        assert re.search(rf"\b{code.name}\b", PAGE)


def test_every_operator_and_dtype_has_a_code() -> None:
    assert set(OPS) == set(OPERATORS)
    assert ", ".join(DTYPES) in PAGE


NUMBERS = {
    "kMostName": layout.MOST_NAME,
    "kMostDims": layout.MOST_DIMS,
    "kMostTerms": layout.MOST_TERMS,
    "kMostAttributes": layout.MOST_ATTRIBUTES,
    "kMostAttributeId": layout.MOST_ATTRIBUTE_ID,
    "kMostParams": layout.MOST_PARAMS,
    "kMostParamBytes": layout.MOST_PARAM_BYTES,
    "kMostShared": layout.MOST_SHARED,
    "kMostThreads": layout.MOST_THREADS,
    "kPeers": layout.REGION_INDICES[RegionKind.PEER],
    "kOperands": layout.REGION_INDICES[RegionKind.OPERAND],
    "kScaleBlock": layout.SCALE_BLOCK,
    "kStoredAlignment": layout.STORED_ALIGNMENT,
    "kStoredScaleColumns": layout.STORED_SCALE_COLUMNS,
    "kVariantBlock": layout.VARIANT_PARAM_BYTES,
    "kReduceBlock": layout.REDUCE_PARAM_BYTES,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_both_readers_have_the_same_bounds(name: str) -> None:
    assert re.search(rf"\b{name} = {NUMBERS[name]}[,;]", HEADER_FILE)
