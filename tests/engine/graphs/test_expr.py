"""Size expressions: the grammar, its values, and hostile text."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.expr import MAX_DEPTH, OPERATORS, Expr, check, evaluate, evaluate_all

NAMES = frozenset({"s0", "s1"})
COUNTS = st.integers(0, 1000)
LEAVES = st.sampled_from(sorted(NAMES)) | COUNTS


def combine(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    safe = st.sampled_from(["+", "*", "min", "max"])
    many = st.tuples(safe, st.lists(parts, min_size=2, max_size=4))
    divided = st.tuples(st.sampled_from(["//", "%", "ceildiv"]), parts, st.integers(1, 64))
    return many.map(lambda p: [p[0], *p[1]]) | divided.map(list)


EXPRESSIONS = st.recursive(LEAVES, combine, max_leaves=10)


def by_python(expr: Expr, sizes: dict[str, int]) -> int:
    """The same value by Python's own parser."""
    if not isinstance(expr, list):
        return sizes.get(expr, expr)
    parts = [by_python(part, sizes) for part in expr[1:]]
    if expr[0] in ("min", "max"):
        return {"min": min, "max": max}[expr[0]](parts)
    if expr[0] == "ceildiv":
        return reduce(lambda a, b: math.ceil(Fraction(a, b)), parts)
    text = expr[0].join(f"({part})" for part in parts)
    return eval(text)


@given(EXPRESSIONS, COUNTS, COUNTS)
def test_values_and_grammar_agree(expr: Expr, first: int, second: int) -> None:
    sizes = {"s0": first, "s1": second}
    check(expr, NAMES)
    assert evaluate(expr, sizes) == by_python(expr, sizes)
    assert evaluate(json.loads(json.dumps(expr)), sizes) == evaluate(expr, sizes)


def test_shapes() -> None:
    assert evaluate_all([], {}) == ()
    assert evaluate_all([2, "s0", ["+", "s0", 1], ["//", ["*", "s0", 3], 2]], {"s0": 5}) == (
        *(2, 5, 6, 7),
    )


def test_inside_an_expression_numbers_may_be_negative() -> None:
    check(["+", "s0", -1], NAMES)
    assert evaluate(["+", "s0", -1], {"s0": 4}) == 3
    with pytest.raises(IntegrityError):
        check(-1, NAMES)


HOSTILE: list[Any] = [
    *(None, True, False, 1.5, float("nan"), -1, 2**53, 2**80, "", "s2", "S0", "+", [], {}),
    *([[]], ["+"], ["+", "s0"], ["-", "s0", 1], ["+", "s0", None], ["+", "s0", True], [1, 2, 3]),
    *(
        ["//", "s0", 0],
        ["%", "s0", 0],
        ["//", "s0", "s1"],
        ["//", 4, -2],
        ["%", 4, 2, 0],
        ["ceildiv", 4, "s0"],
    ),
    *([["+", "s0", 1]], ["+", "s0", ["+", "s1"]], ["__import__", "s0", 1], [["+"], "s0", 1]),
    *({"+": [1, 2]}, ["+", "s0", {"a": 1}], ["+", "s0", "s0", 1.0], ("+", "s0", 1), [True, 1, 1]),
]


@pytest.mark.parametrize("expr", HOSTILE, ids=repr)
def test_what_is_not_in_the_grammar_is_refused(expr: Any) -> None:
    with pytest.raises(IntegrityError, match="refused"):
        check(expr, NAMES)


def nested(depth: int) -> Expr:
    return reduce(lambda inner, _: ["+", inner, 1], range(depth), "s0")


def test_depth_is_bounded() -> None:
    check(nested(MAX_DEPTH), NAMES)
    with pytest.raises(IntegrityError):
        check(nested(MAX_DEPTH + 1), NAMES)
    with pytest.raises(IntegrityError) as caught:
        check(nested(900), NAMES)
    assert len(str(caught.value)) < 200, "a hostile expression does not flood the message"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
        max_leaves=12,
    )
)
def test_anything_is_either_refused_or_has_a_value(expr: Any) -> None:
    try:
        check(expr, NAMES)
    except IntegrityError:
        return
    assert isinstance(evaluate(expr, {"s0": 3, "s1": 5}), int)


def test_every_operator_is_in_the_table_of_the_format() -> None:
    assert sorted(OPERATORS) == sorted(["+", "*", "//", "%", "min", "max", "ceildiv"])
