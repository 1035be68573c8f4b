"""Which filters a load turns, and that step, binding and golden agree about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor
from torch.fx import Graph
from torch.fx.experimental.proxy_tensor import make_fx

from vcc.engine.compile.golden_filters import filters_of
from vcc.engine.graphs.planner.filters import as_read, turned_bindings, turned_in, weights_of
from vcc.engine.graphs.planner.filters import with_turned as turned_step
from vcc.engine.graphs.program import VERSION, Call, Program, Value
from vcc.engine.graphs.table.types import Role
from vcc.engine.types import Piece, Pieces, TensorSpec

CONV = torch.ops.aten.convolution.default


def convolved(image: Tensor, weight: Tensor, **fields: Any) -> Tensor:
    given = {"padding": [1, 1], "transposed": False, "groups": 1} | fields
    padding, transposed, groups = given["padding"], given["transposed"], given["groups"]
    return CONV(image, weight, None, [1, 1], padding, [1, 1], transposed, [0, 0], groups)


def graph_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    return make_fx(function, tracing_mode="fake")(*map(torch.zeros, shapes)).graph


IMAGE, FILTER, SQUARE = (2, 32, 5, 4), (64, 32, 3, 3), (32, 32, 3, 3)
READS: Mapping[str, tuple[Callable[..., Any], tuple[int, ...], bool]] = {
    "alone": (lambda x, w: convolved(x, w), FILTER, True),
    "twice": (lambda x, w: convolved(convolved(x, w), w), SQUARE, True),
    "one tap": (lambda x, w: convolved(x, w, padding=[0, 0]), (64, 32, 1, 1), False),
    "in groups": (lambda x, w: convolved(x, w, groups=2), (64, 16, 3, 3), False),
    "transposed": (lambda x, w: convolved(x, w, transposed=True), (32, 64, 3, 3), False),
    "also summed": (lambda x, w: (convolved(x, w), w.sum()), FILTER, False),
    "also returned": (lambda x, w: (convolved(x, w), w), FILTER, False),
    "computed": (lambda x, w: convolved(x, w * 2), FILTER, False),
    "also an image": (lambda _, w: convolved(w, w), SQUARE, False),
    "not at all": (lambda x, w: x + 1, FILTER, False),
}


@pytest.mark.parametrize("case", READS)
def test_only_what_convolutions_by_pixel_alone_read_is_turned(case: str) -> None:
    function, shape, turns = READS[case]
    graph = graph_of(function, IMAGE, shape)
    _, weight = (node for node in graph.nodes if node.op == "placeholder")
    assert turned_in(graph, [3, 7], {7}) == ({weight: 7} if turns else {})
    assert turned_in(graph, [3, 7], {3}) == {}
    assert turned_in(graph, [7], {7}) == {}


def test_an_image_of_few_channels_keeps_its_windows() -> None:
    graph = graph_of(lambda x, w: convolved(x, w), (2, 3, 5, 4), (64, 3, 3, 3))
    assert turned_in(graph, [0, 1], {1}) == {}


def value(name: str, role: Any, *shape: int) -> Value:
    return Value(name, role, "float32", list(shape), f"model.{name}" if role == "weight" else name)


def program(*calls: Call) -> Program:
    values = [
        value("x", "input", *IMAGE),
        value("w", "weight", *FILTER),
        value("bias", "weight", 64),
        value("y", "buffer", *FILTER),
    ]
    return Program(VERSION, [], values, list(calls), ["y"])


def call(target: str, *names: str) -> Call:
    return Call("piece", target, [*names, "y"], ["y"])


def test_a_weight_is_one_in_all_calls_of_its_piece() -> None:
    programs = [program(call("p", "x", "w"), call("q", "w", "bias")), program(call("q", "w", "x"))]
    assert weights_of(programs) == {"p": {1}, "q": {0}}
    programs.append(program(call("p", "x", "y"), call("q", "x", "x")))
    assert weights_of(programs) == {"p": frozenset(), "q": frozenset()}


def step(*calls: Call) -> Program:
    planned: Any = {"p": SimpleNamespace(turned=(1,)), "q": SimpleNamespace(turned=())}
    return turned_step(Pieces(program(*calls), (), {}), planned).program


def test_a_step_has_a_filter_as_its_pieces_read_it() -> None:
    made = step(call("p", "x", "w"), call("p", "y", "w"))
    assert [one.args[1] for one in made.calls] == ["w_channels_last"] * 2
    names = [one.name for one in made.values]
    assert names == ["x", "bias", "y", "w_channels_last"]
    (turned,) = (one for one in made.values if one.name == "w_channels_last")
    assert (turned.role, turned.shape) == ("weight", [64, 3, 3, 32])
    assert turned.target == "model.w.channels_last"


@pytest.mark.parametrize(
    "other", [call("q", "w", "bias"), Call("op", "vcc::other", ["w", "y"], ["y"])]
)
def test_a_filter_that_is_also_read_as_it_was_is_there_twice(other: Call) -> None:
    made = step(call("p", "x", "w"), other)
    assert {one.name for one in made.values} == {"x", "w", "bias", "y", "w_channels_last"}
    assert made.calls[1] == other


def test_a_filter_that_is_a_result_stays() -> None:
    planned: Any = {"p": SimpleNamespace(turned=(1,))}
    given = msgspec.structs.replace(program(call("p", "x", "w")), outputs=["y", "w"])
    made = turned_step(Pieces(given, (), {}), planned).program
    assert "w" in {one.name for one in made.values}


def test_the_binding_is_that_of_the_parameter() -> None:
    tensors = [SimpleNamespace(target=one, role=Role.WEIGHT) for one in ("model.w", "own")]
    tensors.append(SimpleNamespace(target="model.w.channels_last", role=Role.WEIGHT))
    tensors.append(SimpleNamespace(target="x.channels_last", role=Role.INPUT))
    own = msgspec.structs.replace(value("v", "weight", 4), target="own")
    plain = msgspec.structs.replace(program(), values=[*program().values, own])
    table: Any = SimpleNamespace(tensors=tensors)
    found = turned_bindings([plain], [table])
    assert found == {"model.w.channels_last": 'channels_last(tied("model.w"))'}


def test_a_golden_is_drawn_as_the_filter_lies() -> None:
    graph = make_fx(lambda x, w, y: y.copy_(convolved(x, w)), tracing_mode="fake")(
        *map(torch.zeros, (IMAGE, FILTER, (2, 64, 5, 4)))
    )
    specs = [TensorSpec(torch.float32, one, torch.device("cpu")) for one in (IMAGE, FILTER)]
    specs.append(TensorSpec(torch.float32, (2, 64, 5, 4), torch.device("cpu")))
    piece = Piece("id", graph, tuple(specs), 1, (), "")
    changed = as_read(piece, (1,))
    assert changed.arguments[1].shape == (64, 3, 3, 32)
    assert filters_of(changed.graph) == filters_of(graph) == {1}
    assert (as_read(piece, ()), piece.arguments[1].shape) == (piece, FILTER)
    x, w = torch.randn(IMAGE), torch.randn(FILTER)
    found, wanted = torch.empty(2, 64, 5, 4), torch.empty(2, 64, 5, 4)
    changed.graph(x, w.permute(0, 2, 3, 1).contiguous(), found)
    piece.graph(x, w, wanted)
    assert torch.equal(found, wanted)
