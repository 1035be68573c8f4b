"""The normal form of sizes, case by case; test_arithmetic_values.py holds it against integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import OPERATORS, evaluate
from vcc.engine.graphs.planner.arithmetic import (
    BUILDERS,
    add,
    ceildiv,
    checked,
    dense,
    elements,
    extent,
    floordiv,
    is_dense,
    times,
)

HALF_BELOW = floordiv(times(-1, "T"), 2)
ROWS = times(times(-1, "T"), "B")

FORMS: Mapping[str, tuple[Any, Any]] = {
    "terms of one size are collected": (
        add(times(4096, "K"), times(8192, "K")),
        ["*", 12288, "K"],
    ),
    "numbers of a sum meet": (add(add("T", 3), 4), ["+", "T", 7]),
    "nothing of a size is nothing": (times("T", 0), 0),
    "a multiple is divided without a remainder": (
        ceildiv(times(512, "T"), 256),
        ["*", 2, "T"],
    ),
    "a quotient rounded down of a negative is one rounded up": (
        times(-1, HALF_BELOW),
        ["ceildiv", "T", 2],
    ),
    "and keeps its factor": (times(-2, HALF_BELOW), ["*", 2, ["ceildiv", "T", 2]]),
    "signs of nested products meet": (times(2, times(-1, HALF_BELOW)), times(-2, HALF_BELOW)),
    "a number of a nested product is on the left": (ROWS, ["*", -1, ["*", "T", "B"]]),
    "two signs are none": (times(-1, ROWS), ["*", "T", "B"]),
    "a number moves out of the right part": (
        times("B", ["*", 64, "T"]),
        ["*", 64, ["*", "B", "T"]],
    ),
    "rounded up by the negative": (
        times(-1, floordiv(times(-1, times(3, "T")), 8)),
        ["ceildiv", ["*", 3, "T"], 8],
    ),
    "rounded up by the one before": (
        add(floordiv(add(times(3, "T"), -1), 8), 1),
        ["ceildiv", ["*", 3, "T"], 8],
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_normal_form(name: str) -> None:
    found, wanted = FORMS[name]
    assert found == wanted


@pytest.mark.parametrize("expr", [-1, ["*", -2, "T"], ["//", 8, "T"], ["%", "T", 0]])
def test_what_no_table_can_hold_is_refused(expr: Any) -> None:
    with pytest.raises(CompileError, match="cannot hold"):
        checked(expr)


def test_what_is_rounded_up_either_way_a_table_can_hold() -> None:
    for name in ("rounded up by the negative", "rounded up by the one before"):
        assert checked(FORMS[name][0]) == FORMS[name][1]


@pytest.mark.parametrize(("factor", "least", "by"), [(128, 264, 256), (64, 500, 256), (7, 9, 2)])
def test_a_product_is_rounded_up_to_what_neither_part_is_a_multiple_of(
    factor: int, least: int, by: int
) -> None:
    """128 times 264 is a multiple of 256, and 128 is none: half of it was lost as 0."""
    size = ceildiv(times(factor, ["max", least, times(3, "B")]), by)
    for seqs in (1, 7, 256):
        assert evaluate(size, {"B": seqs}) == -(-factor * max(least, 3 * seqs) // by)


def test_strides() -> None:
    assert dense(("T", 4, 8)) == (32, 8, 1)
    assert is_dense((1, "T"), (999, 1))
    assert not is_dense(("T", 4), (8, 1))
    assert extent(("T", 4), (4, 1)) == elements(("T", 4))
    assert evaluate(extent(("T", 64), (96, 1)), {"T": 5}) >= 4 * 96 + 64


def test_every_operator_of_an_expression_has_its_builder() -> None:
    assert BUILDERS.keys() == OPERATORS.keys()
