"""Sizes of a trace as expressions, where a range holds one value as that number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sympy
import torch
from torch.fx import Node

from vcc.engine.graphs.expr import Expr
from vcc.engine.partition.sizes import to_expr
from vcc.engine.torch_shim.fake import expression


@dataclass(frozen=True, slots=True)
class Measure:
    """Reads sizes.

    Args:
        fixed: symbols that have one value only; no code needs to ask for them.
    """

    fixed: Mapping[sympy.Symbol, int] = field(default_factory=dict)

    def size(self, size: int | torch.SymInt) -> sympy.Expr:
        """A size over the symbols that vary."""
        found = expression(size)
        return found.subs(self.fixed) if self.fixed else found

    def shape(self, value: torch.Tensor, names: Mapping[sympy.Symbol, str]) -> tuple[Expr, ...]:
        """A tensor's sizes as expressions over `names`."""
        return tuple(to_expr(self.size(size), names) for size in value.shape)

    def symbols(self, value: torch.Tensor) -> set[sympy.Symbol]:
        """The symbols in a tensor's sizes."""
        return {s for size in value.shape for s in self.size(size).free_symbols}

    def direct(self, nodes: Sequence[Node]) -> dict[sympy.Symbol, tuple[Node, int]]:
        """For each symbol the first tensor, and the dimension of it, that has just this size."""
        found: dict[sympy.Symbol, tuple[Node, int]] = {}
        for node in nodes:
            for dim, size in enumerate(node.meta["val"].shape):
                symbol = self.size(size)
                if symbol.is_Symbol:
                    found.setdefault(symbol, (node, dim))
        return found

    def is_compound(self, value: torch.Tensor) -> bool:
        """Whether a size of the tensor is an expression of symbols, such as T * T."""
        sizes = [self.size(size) for size in value.shape]
        return any(size.free_symbols and not size.is_Symbol for size in sizes)


AS_TRACED = Measure()
"""No size has one value only."""
