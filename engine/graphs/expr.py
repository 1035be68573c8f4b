"""Integer expressions of a step's sizes, stored as plain lists and evaluated without sympy.

Grammar (JSON): ``expr = int | symbol | [op, expr, expr, ...]`` where ``symbol`` is a string and
``op`` one of ``+ * // % min max ceildiv``. A value's shape is a list of expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
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


def most(expr: Expr, highs: Mapping[str, int]) -> int:
    """What the value never exceeds, each size being anything from 0 to its highest.

    Memory is sized by it: where something is subtracted or a remainder is taken, as in `64 - T` and
    `T % 8`, the value at the highest sizes is not the largest. Everywhere else it is that value.

    Args:
        expr: what `check` takes.
        highs: the largest value of each symbol.
    """
    return _span(expr, highs)[1]


Span = tuple[int, int]
"""The least and the largest value of a part."""


def _span(expr: Expr, highs: Mapping[str, int]) -> Span:
    if isinstance(expr, int):
        return expr, expr
    if isinstance(expr, str):
        return 0, highs[expr]
    head, *parts = expr
    spans = (_span(part, highs) for part in parts)
    return reduce(_remainders if head == "%" else partial(_ends, OPERATORS[head]), spans)


def _ends(operator: Callable[[int, int], int], left: Span, right: Span) -> Span:
    """Every operator but % only grows or only falls with either operand."""
    values = [operator(a, b) for a in left for b in right]
    return min(values), max(values)


def _remainders(left: Span, right: Span) -> Span:
    (low, high), most = left, right[1] - 1
    if low == high and right[0] == right[1]:
        return low % right[0], low % right[0]
    return 0, min(high, most) if low >= 0 else most


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
