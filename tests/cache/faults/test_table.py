"""The table of faults is complete, and the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
TABLE = (HERE / "README.md").read_text()
ROWS = [
    *range(1, 18), *range(19, 24), *range(25, 31), *range(32, 39), 40, *range(41, 46),
    *range(47, 51), 52, 53, 54, 56, 57, 58, 60, 62, 63, 64, *range(66, 71), *range(72, 76),
    *range(77, 84), 85, 86, 87, 89, 90, 91, 93, *range(94, 99), *range(100, 103), 104, 106,
    *range(107, 110), *range(111, 115), 116, 118, 119, 120,
]  # fmt: skip
"""Sections A to G of the project's reliability rows; those left out were never given out."""
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)(?:::(test_\w+))?`", TABLE)))


def test_every_row_has_one_line_with_a_test_or_the_reason_why_it_cannot_happen():
    lines = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", TABLE, re.MULTILINE)
    assert [int(row) for row, _ in lines] == ROWS
    assert all("test_" in how or "cannot happen: " in how for _, how in lines)


@pytest.mark.parametrize(("path", "name"), NAMED, ids=str)
def test_a_test_of_the_table_exists(path, name):
    file = HERE / path if "/" not in path else TESTS / path
    text = file.read_text()
    assert not name or f"def {name}(" in text
