"""Identity of a piece: everything that steers its code changes the id, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.toys import module_of, rows, traced
from torch import Tensor, nn
from torch.fx import Graph, GraphModule

from vcc.cache.digest import Digest
from vcc.cache.errors import CompileError
from vcc.engine.config.inductor_options import option_pairs
from vcc.engine.partition.identity import identity_of, identity_text
from vcc.engine.partition.split import split
from vcc.engine.passes.apply import PASSES, version_pairs
from vcc.engine.torch_shim.inductor import merged_options
from vcc.engine.types import Piece, PieceSymbol, TensorSpec

Function = Callable[..., Any]
CPU = torch.device("cpu")


def piece(
    function: Function,
    *,
    example: Tensor | None = None,
    high: int = 64,
    low: int = 1,
    dynamic: bool = True,
    options: Sequence[tuple[str, str]] = (),
    **parts: Any,
) -> Piece:
    """The only piece of `function(module, x)`."""
    arguments = {"x": rows() if example is None else example}
    axes = {"x": {0: "T"}} if dynamic else {}
    graph = traced(function, arguments, axes, {"T": (low, high)}, **parts)
    (found,) = split(graph, (), options).unique
    return found


def base(m: Any, x: Tensor) -> Tensor:
    return torch.ops.toy.mix(x * 2)


def branching(then: Function, other: Function) -> Function:
    return lambda m, x: torch.cond(x.sum() > 0, then, other, (x,))


CHANGES: dict[str, Callable[[], Piece]] = {
    "range end": lambda: piece(base, high=32),
    "range start": lambda: piece(base, low=2),
    "no range": lambda: piece(base, dynamic=False),
    "hint": lambda: piece(base, example=rows(7)),
    "dtype": lambda: piece(base, example=rows().bfloat16()),
    "width": lambda: piece(base, example=rows(width=5)),
    "rank": lambda: piece(base, example=rows()[:, :, None].contiguous()),
    "overload": lambda: piece(lambda m, x: torch.ops.toy.mix.scaled(x * 2, 1.0)),
    "operator": lambda: piece(lambda m, x: torch.ops.toy.mix(x / 2)),
    "literal": lambda: piece(lambda m, x: torch.ops.toy.mix(x * 3)),
    "float literal": lambda: piece(lambda m, x: torch.ops.toy.mix(x * 2.0)),
    "bool literal": lambda: piece(lambda m, x: torch.ops.toy.mix(x * True)),
    "int one": lambda: piece(lambda m, x: torch.ops.toy.mix(x * 1)),
    "keyword": lambda: piece(lambda m, x: torch.ops.toy.mix(torch.add(x, x, alpha=2))),
    "output twice": lambda: piece(lambda m, x: (y := x * 2, torch.ops.toy.mix(y))),
    "written input": lambda: piece(lambda m, x: torch.ops.toy.mix(x.mul_(2))),
    "option": lambda: piece(base, options=[("inductor.cpp.simdlen", "256")]),
    "option value": lambda: piece(base, options=[("inductor.cpp.simdlen", "512")]),
    "option label": lambda: piece(base, options=[("inductor.cpp.simdle", "n256")]),
    "target": lambda: piece(base, options=option_pairs(merged_options("x86-64-v3", {}))),
    "other target": lambda: piece(base, options=option_pairs(merged_options("x86-64-v4", {}))),
    "passes": lambda: piece(base, options=version_pairs(PASSES)),
    "fewer passes": lambda: piece(base, options=version_pairs(PASSES[:1])),
    "pass version": lambda: piece(
        base, options=version_pairs([replace(one, version="other") for one in PASSES])
    ),
    "branch": lambda: piece(branching(lambda x: x * 2, lambda x: x * 3)),
    "branch literal": lambda: piece(branching(lambda x: x * 2, lambda x: x * 4)),
    "branch order": lambda: piece(branching(lambda x: x * 3, lambda x: x * 2)),
    "branch operator": lambda: piece(branching(lambda x: x * 2, lambda x: x + 3)),
}


def test_whatever_steers_the_code_changes_the_id() -> None:
    ids = {"base": piece(base).id, **{name: make().id for name, make in CHANGES.items()}}
    twins = [(a, b) for a in ids for b in ids if a < b and ids[a] == ids[b]]
    assert twins == []


def test_names_do_not_change_the_id() -> None:
    """Neither of inputs, weights, modules, nodes and sizes, nor the trace they come from."""

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module_of(lambda m, x: x * 2)

        def forward(self, hidden: Tensor) -> Tensor:
            return torch.ops.toy.mix(self.inner(hidden))

    graph = traced(Other(), {"hidden": rows()}, {"hidden": {0: "rows"}}, {"rows": (1, 64)})
    (other,) = split(graph, (), ()).unique
    assert other.id == piece(base).id
    assert str(graph.graph.code) != str(piece(base).graph.code)


def test_sizes_are_named_by_appearance() -> None:
    """Two sizes that swap places in the trace give one piece; swapped ranges give another."""

    def both(first: tuple[int, int], second: tuple[int, int], names: str) -> Piece:
        axes = {"x": {0: names[0], 1: names[1]}}
        graph = traced(
            lambda m, x: x * 2, {"x": rows(6, 5)}, axes, {names[0]: first, names[1]: second}
        )
        (found,) = split(graph, (), ()).unique
        return found

    one = both((1, 8), (1, 64), "AB")
    assert [(s.name, s.high, s.hint) for s in one.symbols] == [("s0", 8, 6), ("s1", 64, 5)]
    assert both((1, 8), (1, 64), "BA").id == one.id
    assert both((1, 64), (1, 8), "AB").id != one.id


def test_weights_count_by_geometry_alone() -> None:
    def model(m: Any, x: Tensor) -> Tensor:
        return x @ m.weight

    def of(weight: Tensor) -> str:
        return piece(model, weight=nn.Parameter(weight, requires_grad=False)).id

    assert of(torch.zeros(4, 3)) == of(torch.randn(4, 3))
    assert of(torch.zeros(4, 3)) != of(torch.zeros(4, 2))


def test_the_id_is_the_digest_of_a_text_that_can_be_read() -> None:
    found = piece(base, options=[("target", "cpu:x86-64-v3")])
    assert found.id == Digest.of(found.identity.encode()).hex == identity_of(found.identity)
    assert found.identity.splitlines()[:4] == [
        "option 'target' = 'cpu:x86-64-v3'",
        "symbol s0 in [1, 64] hint 6",
        "argument 0 torch.float32 ['s0', 4] dense cpu",
        "argument 1 torch.float32 ['s0', 4] dense cpu written",
    ]


def test_a_line_break_in_an_option_cannot_imitate_another_line() -> None:
    one = piece(base, options=[("a", "1\noption b = 2"), ("c", "3")])
    two = piece(base, options=[("a", "1"), ("b", "2"), ("c", "3")])
    three = piece(base, options=[("a", "1"), ("b = 2\noption c", "3")])
    assert len({one.id, two.id, three.id}) == 3


def text_with(argument: object) -> str:
    graph = Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.ops.aten.add.Tensor, (x, argument))
    graph.output(())
    spec = TensorSpec(torch.float32, ("s0",), CPU)
    module = GraphModule(nn.Module(), graph)
    return identity_text(module, [spec], [PieceSymbol("s0", 1, 8, 4)], ())


def test_literals_are_told_apart_by_type_and_depth() -> None:
    values: list[object] = [
        *(1, True, 1.0, "1", None, 1 + 0j, [1], [[1]], [1, 1], {"a": 1}, {"b": 1}, slice(0, 1)),
        *(torch.float32, torch.device("cpu"), torch.strided, torch.contiguous_format, -0.0, 0.0),
        *(slice(None, 1), [], [[]], "", "[]", {}, float("inf"), float("nan")),
    ]
    texts = [text_with(value) for value in values]
    assert len(set(texts)) == len(values)


def test_a_value_without_a_text_is_refused() -> None:
    with pytest.raises(CompileError, match="type range has no canonical text"):
        text_with(range(3))
