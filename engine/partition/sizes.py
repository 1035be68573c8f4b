"""Symbolic sizes as plain expressions, under names chosen by the caller."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import sympy
import torch

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr
from vcc.engine.torch_shim.fake import FLOOR_DIVISIONS, MAXIMA, MINIMA, MODULI

HEADS: Mapping[type, str] = {
    sympy.Add: "+",
    sympy.Mul: "*",
    **dict.fromkeys(FLOOR_DIVISIONS, "//"),
    **dict.fromkeys(MODULI, "%"),
    **dict.fromkeys(MAXIMA, "max"),
    **dict.fromkeys(MINIMA, "min"),
}

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": torch.sym_max,
    "min": torch.sym_min,
}


def to_expr(size: Any, names: Mapping[sympy.Symbol, str]) -> Expr:
    """A sympy expression as lists, ints and names; operands in canonical order.

    Raises:
        CompileError: the expression uses a function that step programs cannot hold.
    """
    if isinstance(size, int):
        return size
    if size.is_Integer:
        return int(size)
    if size.is_Symbol:
        return names[size]
    if isinstance(size, sympy.Pow) and size.exp.is_Integer and size.exp > 0:
        return ["*", *[to_expr(size.base, names)] * int(size.exp)]
    head = next((HEADS[kind] for kind in HEADS if isinstance(size, kind)), None)
    if head is None:
        raise CompileError(
            f"size {size} cannot be expressed in a step program",
            f"{type(size).__name__} is not one of + * // % min max",
            "make the size an affine function of the declared ones",
        )
    parts = size.args if head in ("//", "%") else sorted(size.args, key=sympy.default_sort_key)
    return [head, *(to_expr(part, names) for part in parts)]


def build(expr: Expr, leaf: Callable[[str], Any], call: Callable[..., Any] | None = None) -> Any:
    """Rebuild an expression from leaves: real ints, SymInts, or nodes of a graph.

    Args:
        expr: the expression.
        leaf: gives the value of a symbol.
        call: applies a function to two operands; calls it directly when None.
    """
    if isinstance(expr, int):
        return expr
    if isinstance(expr, str):
        return leaf(expr)
    function = FUNCTIONS[expr[0]]
    parts = [build(part, leaf, call) for part in expr[1:]]
    apply = call or (lambda f, a, b: f(a, b))
    return reduce(lambda a, b: apply(function, a, b), parts)
