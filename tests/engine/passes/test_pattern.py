"""Patterns: what they capture, which graphs they refuse, and what they say of a near-match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.toys import rows, traced
from torch import Tensor

from vcc.engine.passes.pattern import Capture, Const, Item, Match, Miss, Op, match, matches

aten, toy = torch.ops.aten, torch.ops.toy
Model = Callable[[Any, Tensor], Any]

X = Capture("x")
MEAN = Op((aten.mean.dim,), Op((aten.pow.Tensor_Scalar,), X, Const(2)), Const([-1]), Const(True))
NORM = Op(
    (aten.mul.Tensor,),
    X,
    Op((aten.rsqrt.default,), Op((aten.add.Tensor,), MEAN, Capture("eps"))),
    commutes=True,
    name="norm",
)


def found_in(model: Model, pattern: Op = NORM, least: int = 1) -> tuple[list[Match], list[str]]:
    return matches(pattern, traced(model, {"x": rows()}, {"x": {0: "T"}}).graph.graph, least)


def norm(x: Tensor, eps: float = 1e-3) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def test_a_pattern_captures_nodes_and_values() -> None:
    """F10: any epsilon."""
    found, near = found_in(lambda m, x: norm(x.relu(), 1e-3).exp())
    assert [(one.captures["x"].name, one.captures["eps"]) for one in found] == [("relu", 1e-3)]
    assert found[0].captures["norm"] is found[0].nodes[0]
    assert [node.name for node in found[0].nodes] == ["mul", "rsqrt", "add", "mean", "pow_1"]
    assert near == []


def test_factors_may_stand_in_either_order() -> None:
    found, _ = found_in(lambda m, x: torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * x)
    assert len(found) == 1


def test_every_place_is_found() -> None:
    assert len(found_in(lambda m, x: norm(norm(x) * 2).exp())[0]) == 2


NEAR: dict[str, tuple[Model, str]] = {
    "another power": (
        lambda m, x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 1e-5),
        "mul: a value is 3, not 2",
    ),
    "another dimension": (
        lambda m, x: x * torch.rsqrt(x.pow(2).mean([0], keepdim=True) + 1e-5),
        "mul: a value is [0], not [-1]",
    ),
    "another operator": (
        lambda m, x: x * torch.rsqrt(x.abs().mean(-1, keepdim=True) + 1e-5),
        "mul: abs_1 calls aten::abs.default, where aten::pow.Tensor_Scalar is wanted",
    ),
    "the norm of another tensor": (
        lambda m, x: x.exp() * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5),
        "mul: x is x here and exp elsewhere",
    ),
    "a step that somebody else reads too": (
        lambda m, x: (r := torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), x * r, r + 1)[1:],
        "mul: rsqrt is also read by add_1",
    ),
    "a write between its calls": (
        lambda m, x: (
            y := x * 3,
            r := torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5),
            y[0].add_(1),
            y * r,
        )[3],
        "mul_1: add_ writes in place between its calls",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_a_near_match_says_the_first_thing_that_differs(name: str) -> None:
    model, reason = NEAR[name]
    found, near = found_in(model, least=2)
    assert found == []
    assert near == [reason]


def test_what_is_far_from_the_pattern_is_not_told() -> None:
    assert found_in(lambda m, x: (x * 2).exp(), least=2) == ([], [])


def test_a_shared_step_may_be_read_by_others() -> None:
    inner = Op((aten.exp.default,), X, shared=True)
    pattern = Op((aten.add.Tensor,), inner, Capture("other"))
    found, _ = found_in(lambda m, x: (e := x.exp(), e + 1, e.cos())[1:], pattern)
    assert len(found) == 1


def test_a_condition_on_a_capture_is_a_reason() -> None:
    def small(value: Any) -> str:
        return "" if value < 1 else f"{value} is too large"

    pattern = Op((aten.add.Tensor,), X, Capture("number", small))
    assert found_in(lambda m, x: x + 0.5, pattern)[0]
    assert found_in(lambda m, x: x + 2, pattern)[1] == ["add: 2 is too large"]


def test_an_item_of_a_tuple_is_matched_by_its_place() -> None:
    def model(m: Any, x: Tensor) -> Any:
        first, second = toy.pair(x)
        return first.relu(), second.relu()

    pattern = Op((aten.relu.default,), Item(Op((toy.pair.default,), X, shared=True), 1))
    found, near = found_in(model, pattern)
    assert [one.nodes[0].name for one in found] == ["relu_1"]
    assert near == ["relu: getitem is item 0, not 1"]


def test_a_value_of_another_type_is_no_constant() -> None:
    pattern = Op((aten.add.Tensor,), X, Const(1))
    assert found_in(lambda m, x: x + 1, pattern)[0]
    assert not found_in(lambda m, x: x + True, pattern)[0]


def test_an_input_is_no_call() -> None:
    graph = traced(lambda m, x: x.relu(), {"x": rows()}).graph.graph
    node = next(one for one in graph.nodes if one.name == "relu")
    missed = match(Op((aten.relu.default,), Op((aten.exp.default,), X)), node)
    assert missed == Miss("x is an input, where aten::exp.default is wanted", 1)
