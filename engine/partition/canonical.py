"""A part's graph as a Piece: sizes renamed by appearance, identity taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node

from vcc.engine.partition.extract import Extracted
from vcc.engine.partition.identity import identity_of, identity_text
from vcc.engine.partition.measure import Measure
from vcc.engine.partition.sizes import build
from vcc.engine.torch_shim import fake
from vcc.engine.types import Piece, PieceSymbol, TensorSpec

Ranges = Mapping[str, tuple[int, int]]
"""Inclusive range of each size symbol of a trace, by the symbol's name."""


def piece_of(extracted: Extracted, ranges: Ranges, options: Sequence[tuple[str, str]]) -> Piece:
    """Name the sizes of a part canonically and compute its identity."""
    nodes = (*extracted.inputs, *extracted.outputs)
    names = _appearance(nodes, extracted.measure)
    arguments = tuple(_spec(node, names, extracted.measure) for node in nodes)
    symbols = tuple(_symbol(name, symbol, nodes, ranges) for symbol, name in names.items())
    text = identity_text(extracted.graph, arguments, symbols, options)
    return Piece(
        id=identity_of(text),
        graph=extracted.graph,
        arguments=arguments,
        outputs=len(extracted.outputs),
        symbols=symbols,
        identity=text,
    )


def fake_arguments(piece: Piece) -> tuple[torch.Tensor, ...]:
    """Fresh fake tensors for a piece, whose symbols are named as in its identity.

    Code generated from them depends on the identity alone, not on the trace it came from.
    """
    mode = fake.fake_mode()
    sizes = {s.name: fake.new_symbol(mode, s.name, s.hint, s.low, s.high) for s in piece.symbols}
    return tuple(_fake(spec, mode, sizes) for spec in piece.arguments)


def _fake(spec: TensorSpec, mode: Any, sizes: dict[str, torch.SymInt]) -> torch.Tensor:
    shape = [build(size, sizes.__getitem__) for size in spec.shape]
    return fake.strided(mode, shape, dense_strides(shape), spec.dtype, spec.device)


def dense_strides(shape: Sequence[int | torch.SymInt]) -> list[int | torch.SymInt]:
    """Row-major strides without gaps."""
    strides: list[int | torch.SymInt] = []
    step: int | torch.SymInt = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return strides[::-1]


def _appearance(nodes: Sequence[Node], measure: Measure) -> dict[sympy.Symbol, str]:
    names: dict[sympy.Symbol, str] = {}
    for node in nodes:
        for size in node.meta["val"].shape:
            for symbol in sorted(measure.size(size).free_symbols, key=str):
                names.setdefault(symbol, f"s{len(names)}")
    return names


def _spec(node: Node, names: dict[sympy.Symbol, str], measure: Measure) -> TensorSpec:
    value = node.meta["val"]
    return TensorSpec(value.dtype, measure.shape(value, names), value.device)


def _symbol(name: str, symbol: sympy.Symbol, nodes: Sequence[Node], ranges: Ranges) -> PieceSymbol:
    value = next(
        n.meta["val"]
        for n in nodes
        if any(symbol in fake.expression(s).free_symbols for s in n.meta["val"].shape)
    )
    low, high = ranges[str(symbol)]
    hint = fake.hint_of(value, symbol) or low
    # A trace has one example of each size; a range that does not hold it takes its nearest end.
    return PieceSymbol(name, low, high, max(low, min(high, hint)))
