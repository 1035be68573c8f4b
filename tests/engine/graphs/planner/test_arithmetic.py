"""Sizes in normal form: equal in value to what they are built from, and fit for a table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import evaluate
from vcc.engine.graphs.planner import arithmetic
from vcc.engine.graphs.planner.arithmetic import (
    add,
    ceildiv,
    checked,
    dense,
    divisor,
    elements,
    extent,
    floordiv,
    is_dense,
    rebuilt,
    times,
)

LEAVES = st.sampled_from(["T", "B"]) | st.integers(0, 64)


def operations(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.tuples(st.sampled_from(["+", "*", "min", "max"]), parts, parts)
    divided = st.tuples(st.sampled_from(["//", "%", "ceildiv"]), parts, st.integers(1, 9))
    return (pairs | divided).map(list)


EXPRESSIONS = st.recursive(LEAVES, operations, max_leaves=8)
SIZES = st.fixed_dictionaries({"T": st.integers(1, 4096), "B": st.integers(1, 256)})


@given(EXPRESSIONS, SIZES)
def test_the_normal_form_has_the_same_value(expr: Any, sizes: dict[str, int]) -> None:
    found = rebuilt(expr, {"T": "T", "B": "B"})
    assert evaluate(found, sizes) == evaluate(expr, sizes)
    checked(found)


@given(EXPRESSIONS, SIZES)
def test_a_divisor_divides(expr: Any, sizes: dict[str, int]) -> None:
    value, by = evaluate(expr, sizes), divisor(expr)
    assert value == 0 if by == 0 else value % by == 0


@given(st.integers(1, 4096), st.integers(1, 64), st.integers(1, 64))
def test_both_ways_to_round_up_become_one(size: int, factor: int, by: int) -> None:
    scaled = times(factor, "T")
    minus = times(-1, floordiv(times(-1, scaled), by))
    before = add(floordiv(add(scaled, -1), by), 1)
    for found in (minus, before):
        checked(found)
        assert evaluate(found, {"T": size}) == -(-factor * size // by)


@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 64), st.sampled_from([2, 64, 256]))
def test_a_product_is_rounded_up_to_what_neither_part_is_a_multiple_of(
    factor: int, least: int, heads: int, by: int
) -> None:
    """128 times 264 is a multiple of 256, and 128 is none: half of it was lost as 0."""
    size = times(factor, ["max", least, times(heads, "B")])
    for seqs in (1, 7, 256):
        whole = factor * max(least, heads * seqs)
        assert evaluate(ceildiv(size, by), {"B": seqs}) == -(-whole // by)


def test_terms_of_one_size_are_collected() -> None:
    assert add(times(4096, "K"), times(8192, "K")) == ["*", 12288, "K"]
    assert add(add("T", 3), 4) == ["+", "T", 7]
    assert times("T", 0) == 0
    assert ceildiv(times(512, "T"), 256) == ["*", 2, "T"]
    rounded_down = floordiv(times(-1, "T"), 2)
    assert times(-1, rounded_down) == ["ceildiv", "T", 2]
    assert times(2, times(-1, rounded_down)) == times(-2, rounded_down)
    assert times(-2, rounded_down) == ["*", 2, ["ceildiv", "T", 2]]


@pytest.mark.parametrize("expr", [-1, ["*", -2, "T"], ["//", 8, "T"], ["%", "T", 0]])
def test_what_no_table_can_hold_is_refused(expr: Any) -> None:
    with pytest.raises(CompileError, match="cannot hold"):
        checked(expr)


def test_strides() -> None:
    assert dense(("T", 4, 8)) == (32, 8, 1)
    assert is_dense((1, "T"), (999, 1))
    assert not is_dense(("T", 4), (8, 1))
    assert extent(("T", 4), (4, 1)) == elements(("T", 4))
    assert evaluate(extent(("T", 64), (96, 1)), {"T": 5}) >= 4 * 96 + 64


def test_every_operator_of_an_expression_has_its_builder() -> None:
    from vcc.engine.graphs.expr import OPERATORS

    assert arithmetic.BUILDERS.keys() == OPERATORS.keys()


def test_numbers_of_nested_products_meet_on_the_left() -> None:
    rows = times(times(-1, "T"), "B")
    assert rows == ["*", -1, ["*", "T", "B"]]
    assert times(-1, rows) == ["*", "T", "B"]
    assert times("B", ["*", 64, "T"]) == ["*", 64, ["*", "B", "T"]]
