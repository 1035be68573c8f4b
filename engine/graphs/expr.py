"""Integer expressions of a step's sizes, stored as plain lists and evaluated without sympy.

Grammar (JSON): ``expr = int | symbol | [op, expr, expr, ...]`` where ``symbol`` is a string and
``op`` one of ``+ * // % min max ceildiv``. A value's shape is a list of expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from vcc.cache.errors import IntegrityError

Expr = Any
"""``int``, symbol name, or ``[op, operand, operand, ...]`` as read from JSON."""

MAX_DEPTH = 16

MOST = 2**53 - 1
"""Largest number in an expression; inside one it may be negative (``["+", "s0", -1]``)."""

OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
    "ceildiv": lambda a, b: -(-a // b),
}


def evaluate(expr: Expr, sizes: Mapping[str, int]) -> int:
    """The value of `expr` with every symbol replaced by its size.

    Raises:
        KeyError: a symbol has no size; `check` refuses such expressions when a program is read.
    """
    if isinstance(expr, int):
        return expr
    if isinstance(expr, str):
        return sizes[expr]
    return reduce(OPERATORS[expr[0]], (evaluate(part, sizes) for part in expr[1:]))


def evaluate_all(exprs: Sequence[Expr], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The values of several expressions, such as a shape."""
    return tuple(evaluate(expr, sizes) for expr in exprs)


def check(expr: Expr, symbols: frozenset[str], depth: int = 0) -> None:
    """Refuse an expression that is not of the grammar or names an unknown symbol.

    Raises:
        IntegrityError: with the offending part in its text.
    """
    if type(expr) is int and (0 if depth == 0 else -MOST) <= expr <= MOST:
        return
    if isinstance(expr, str) and expr in symbols:
        return
    if not _is_operation(expr) or depth >= MAX_DEPTH or _divides_by_zero(expr):
        raise IntegrityError("size expression refused", f"{expr!r:.80} is not in the grammar")
    for part in expr[1:]:
        check(part, symbols, depth + 1)


def _is_operation(expr: Expr) -> bool:
    named = isinstance(expr, list) and len(expr) >= 3 and isinstance(expr[0], str)
    return named and expr[0] in OPERATORS


def _divides_by_zero(expr: Sequence[Any]) -> bool:
    divides = expr[0] in ("//", "%", "ceildiv")
    return divides and any(type(part) is not int or part < 1 for part in expr[2:])
