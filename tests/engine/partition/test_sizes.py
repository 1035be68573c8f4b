"""Sizes as stored expressions: equal to sympy's value, and what cannot be stored is refused."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import check, evaluate
from vcc.engine.partition.sizes import FUNCTIONS, HEADS, build, to_expr
from vcc.engine.torch_shim.fake import FLOOR_DIVISIONS, MODULI

A, B = sympy.symbols("a b", integer=True, positive=True)
NAMES = {A: "s0", B: "s1"}
FLOOR, MOD = FLOOR_DIVISIONS[0], MODULI[0]


def combine(parts: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
    two = st.tuples(parts, parts)
    by = st.tuples(parts, st.integers(1, 9))
    return st.one_of(
        two.map(lambda p: p[0] + p[1]),
        two.map(lambda p: p[0] * p[1]),
        two.map(lambda p: sympy.Max(*p)),
        two.map(lambda p: sympy.Min(*p)),
        by.map(lambda p: FLOOR(p[0], sympy.Integer(p[1]))),
        by.map(lambda p: MOD(p[0], sympy.Integer(p[1]))),
    )


LEAVES = st.sampled_from([A, B]) | st.integers(0, 9).map(sympy.Integer)
EXPRESSIONS = st.recursive(LEAVES, combine, max_leaves=6)


@given(EXPRESSIONS, st.integers(1, 500), st.integers(1, 500))
def test_a_stored_size_has_the_value_of_the_symbolic_one(size: sympy.Expr, a: int, b: int) -> None:
    stored = to_expr(size, NAMES)
    value = int(size.subs({A: a, B: b}))
    assert evaluate(stored, {"s0": a, "s1": b}) == value
    assert build(stored, {"s0": a, "s1": b}.__getitem__) == value
    if not isinstance(stored, int) or stored >= 0:
        check(stored, frozenset({"s0", "s1"}))


@given(st.permutations([A, 2 * B, A * B, sympy.Integer(3)]))
def test_operands_are_stored_in_one_order(parts: list[sympy.Expr]) -> None:
    assert to_expr(sum(parts), NAMES) == to_expr(A + 2 * B + A * B + 3, NAMES)


def test_names_are_the_callers() -> None:
    assert to_expr(A + B, {A: "x", B: "y"}) == ["+", "x", "y"]
    assert to_expr(7, {}) == 7
    assert to_expr(A**3, NAMES) == ["*", "s0", "s0", "s0"]


BEYOND = [sympy.sqrt(A), A / 2, 2**A, sympy.Piecewise((A, A > 3), (B, True))]


@pytest.mark.parametrize("size", BEYOND)
def test_a_size_beyond_the_grammar_is_refused(size: sympy.Expr) -> None:
    with pytest.raises(CompileError, match="cannot be expressed"):
        to_expr(size, NAMES)


def test_every_operator_can_be_rebuilt_in_a_graph() -> None:
    assert set(HEADS.values()) == set(FUNCTIONS)
