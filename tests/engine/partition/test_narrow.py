"""A trace for a part of its range: code of its own, literals for one size, equal parts once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.interpret import same_as_model
from support.toys import calls_of, rows, traced
from torch import Tensor

from vcc.cache.errors import CompileError
from vcc.engine.config.sizes import token_ranges
from vcc.engine.config.types import DimRange
from vcc.engine.partition.narrow import narrowed
from vcc.engine.partition.split import split
from vcc.engine.types import Pieces, Traced

toy = torch.ops.toy
PLACE = ("x", 0)


def model(m: Any, x: Tensor) -> Tensor:
    tokens, width = x.shape
    y = toy.mix(x * 2)
    return y.reshape(tokens * width) * (1 / tokens) + torch.arange(tokens * width)


def whole() -> Traced:
    return traced(model, {"x": rows()}, {"x": {0: "T"}}, {"T": (1, 8192)})


def cut(graph: Traced, low: int, high: int) -> Pieces:
    return split(narrowed(graph, PLACE, DimRange(low, high)), ("toy::mix",), ())


def test_p9_each_part_has_code_for_each_range_and_size() -> None:
    """P9: end points [8, 32], exact sizes [16, 64], max 8192: 5 pieces for each of the 2 parts."""
    graph = whole()
    ranges = token_ranges((8, 32), (16, 64), DimRange(1, 8192))
    found = [cut(graph, one.min, one.max) for one in ranges]
    for index in range(2):
        assert len({pieces.unique[index].id for pieces in found}) == 5
    symbols = [(s.low, s.high) for pieces in found for s in pieces.program.symbols]
    assert symbols == [(1, 8), (9, 32), (33, 8192), (16, 16), (64, 64)]
    hints = [s.hint for pieces in found for piece in pieces.unique for s in piece.symbols]
    assert set(hints) == {6, 9, 33}, "the example where a range holds it, else the nearest end"


@pytest.mark.parametrize(("low", "high", "tokens"), [(1, 8, 3), (9, 32, 9), (5, 5, 5), (1, 1, 1)])
def test_a_range_computes_what_the_model_does(low: int, high: int, tokens: int) -> None:
    graph = narrowed(whole(), PLACE, DimRange(low, high))
    pieces = split(graph, ("toy::mix",), ())
    same_as_model(model, pieces, graph, {"x": torch.randn(tokens, 4)})


def test_code_for_one_size_asks_for_none() -> None:
    """An exact size is a literal in the graph, and no argument is there for its size alone."""
    pieces = cut(whole(), 16, 16)
    last = pieces.unique[-1]
    assert [spec.shape for spec in last.arguments] == [(16, 4), (64,)]
    assert last.symbols == ()
    targets = [str(node.target) for node in last.graph.graph.nodes]
    assert not [target for target in targets if "sym_size" in target]


def test_what_does_not_depend_on_the_range_is_one_piece() -> None:
    def sums(m: Any, x: Tensor, y: Tensor) -> Tensor:
        return toy.mix(x * 2).sum(0), toy.mix(y + 1) * 3

    arguments, dynamic = {"x": rows(), "y": rows(3)}, {"x": {0: "T"}}
    graph = traced(sums, arguments, dynamic)
    found = [cut(graph, low, high) for low, high in ((1, 8), (9, 64), (16, 16))]
    ids = [{piece.id for piece in pieces.unique} for pieces in found]
    assert calls_of(found[0].program).count("piece") == 3
    assert len(set.union(*ids)) < sum(map(len, ids))


def test_ranges_leave_the_trace_as_it_was() -> None:
    graph = whole()
    before = graph.graph.code
    one = narrowed(graph, PLACE, DimRange(1, 8))
    one.graph.graph.erase_node(next(n for n in reversed(one.graph.graph.nodes) if n.op == "output"))
    assert graph.graph.code == before
    assert list(graph.ranges.values()) == [(1, 8192)]


@pytest.mark.parametrize("place", [("x", 1), ("nothing", 0)])
def test_a_size_that_does_not_vary_has_no_ranges(place: tuple[str, int]) -> None:
    with pytest.raises(CompileError, match="no code can be made for ranges"):
        narrowed(whole(), place, DimRange(1, 8))
