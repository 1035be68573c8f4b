"""Sizes as expressions: built in a normal form, renamed, and checked to be what a table can hold.

A table has no negative numbers and no subtraction. Inductor rounds up as ``-(-x // d)`` or
``(x - 1) // d + 1``: both become ``ceildiv``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from math import gcd, prod

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr

SIZES: Mapping[str, int] = {
    **dict.fromkeys(("float64", "int64"), 8),
    **dict.fromkeys(("float32", "int32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bool"), 1),
}
"""Bytes of an element by the name of its type."""


def add(left: Expr, right: Expr) -> Expr:
    """A sum, constants folded and kept on the right."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if isinstance(left, int):
        left, right = right, left
    if right == 0:
        return left
    if _is(left, "+") and isinstance(left[2], int) and isinstance(right, int):
        return add(left[1], left[2] + right)
    if _terms(left)[1] == _terms(right)[1]:
        return times(_terms(left)[0] + _terms(right)[0], _terms(left)[1])
    if right == 1 and _is(left, "//") and _is(left[1], "+") and left[1][2] == -1:
        return ceildiv(left[1][1], left[2])
    return ["+", left, right]


def _terms(expr: Expr) -> tuple[int, Expr]:
    """A factor that is a number, and the rest."""
    scaled = _is(expr, "*") and isinstance(expr[1], int)
    return (expr[1], expr[2]) if scaled else (1, expr)


def times(left: Expr, right: Expr) -> Expr:
    """A product, constants folded and kept on the left."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if isinstance(right, int):
        left, right = right, left
    if left == 0:
        return 0
    if left == 1:
        return right
    if isinstance(left, int) and _is(right, "*") and isinstance(right[1], int):
        return times(left * right[1], right[2])
    if isinstance(left, int) and left < 0 and _is(right, "//"):
        return times(-left, ceildiv(times(-1, right[1]), right[2]))
    (first, one), (second, other) = _terms(left), _terms(right)
    if not isinstance(left, int) and first * second != 1:
        return times(first * second, ["*", one, other])
    return ["*", left, right]


def floordiv(left: Expr, right: Expr) -> Expr:
    """A quotient rounded down."""
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    return left if right == 1 else ["//", left, right]


def ceildiv(left: Expr, right: Expr) -> Expr:
    """A quotient rounded up."""
    if isinstance(left, int) and isinstance(right, int):
        return -(-left // right)
    if right == 1:
        return left
    factor, rest = _terms(left)
    # The factor itself: a product may be divisible by what neither of its parts is.
    if isinstance(right, int) and factor % right == 0:
        return times(factor // right, rest)
    return ["ceildiv", left, right]


def modulo(left: Expr, right: Expr) -> Expr:
    """A remainder."""
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    return ["%", left, right]


def least(left: Expr, right: Expr) -> Expr:
    """The smaller of two."""
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return left if left == right else ["min", left, right]


def most(left: Expr, right: Expr) -> Expr:
    """The larger of two."""
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return left if left == right else ["max", left, right]


BUILDERS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "+": add,
    "*": times,
    "//": floordiv,
    "%": modulo,
    "min": least,
    "max": most,
    "ceildiv": ceildiv,
}


def rebuilt(expr: Expr, names: Mapping[str, Expr]) -> Expr:
    """An expression in normal form with every symbol replaced.

    Raises:
        KeyError: a symbol has no replacement.
    """
    if isinstance(expr, int):
        return expr
    if isinstance(expr, str):
        return names[expr]
    return reduce(BUILDERS[expr[0]], (rebuilt(part, names) for part in expr[1:]))


def checked(expr: Expr) -> Expr:
    """The expression, if a table can hold it.

    Raises:
        CompileError: it subtracts, is negative, or divides by a size.
    """
    if isinstance(expr, str) or (isinstance(expr, int) and expr >= 0):
        return expr
    if isinstance(expr, int) or _divides(expr):
        raise CompileError(
            f"a node table cannot hold the size {expr!r:.80}",
            "its sizes are sums, products and quotients of numbers that are not negative",
        )
    for part in expr[1:]:
        checked(part)
    return expr


def _divides(expr: Expr) -> bool:
    """Whether it divides by something else than positive numbers."""
    known = all(isinstance(by, int) and by > 0 for by in expr[2:])
    return expr[0] in ("//", "%", "ceildiv") and not known


def settled(expr: Expr, ranges: Mapping[str, tuple[int, int]]) -> Expr:
    """The number that an expression is at every size in the ranges; otherwise the expression."""
    found = bounds(expr, ranges)
    return found[0] if found is not None and found[0] == found[1] else expr


def bounds(expr: Expr, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Numbers between which the value lies; None where a divisor is no positive number."""
    if isinstance(expr, int):
        return expr, expr
    if isinstance(expr, str):
        return ranges[expr]
    parts = [bounds(part, ranges) for part in expr[1:]]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or _divides(expr):
        return None
    if expr[0] == "%":
        return 0, known[1][1] - 1
    return reduce(partial(_corners, BUILDERS[expr[0]]), known)


def _corners(
    build: Callable[[Expr, Expr], Expr], left: tuple[int, int], right: tuple[int, int]
) -> tuple[int, int]:
    """The least and the most of an operation that grows or falls with each operand."""
    found = [build(one, other) for one in left for other in right]
    return min(found), max(found)


def divisor(expr: Expr) -> int:
    """A number that divides the expression whatever its symbols are; 0 for zero itself."""
    if isinstance(expr, int):
        return abs(expr)
    if isinstance(expr, str):
        return 1
    parts = [divisor(part) for part in expr[1:]]
    if expr[0] == "*":
        return prod(parts)
    return gcd(*parts) if expr[0] in ("+", "min", "max") else 1


def elements(shape: Sequence[Expr]) -> Expr:
    """The number of elements of a shape."""
    return reduce(times, shape, 1)


def dense(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Row-major strides without gaps, in elements."""
    strides: list[Expr] = []
    step: Expr = 1
    for size in reversed(shape):
        strides.append(step)
        step = times(size, step)
    return tuple(strides[::-1])


def extent(shape: Sequence[Expr], stride: Sequence[Expr]) -> Expr:
    """Elements of memory that a buffer of these strides needs at most."""
    if is_dense(shape, stride):
        return elements(shape)
    total = reduce(add, (times(size, step) for size, step in zip(shape, stride, strict=True)), 0)
    # With strides of zero alone there is one element, which is not counted.
    counted = any(isinstance(step, int) and step > 0 for step in stride)
    return total if counted else most(total, 1)


def is_dense(shape: Sequence[Expr], stride: Sequence[Expr]) -> bool:
    """Whether the strides are row-major without gaps; those of single elements do not matter."""
    wanted = zip(shape, stride, dense(shape), strict=True)
    return all(size == 1 or found == right for size, found, right in wanted)


def _is(expr: Expr, head: str) -> bool:
    """Whether it is this operation of two operands; a size of a program may have more."""
    return isinstance(expr, list) and expr[0] == head and len(expr) == 3
