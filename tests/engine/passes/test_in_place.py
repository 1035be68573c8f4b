"""In-place restoration: operators of a library write where their memory dies, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.interpret import same_as_model
from support.toys import rows, traced
from torch import Tensor

from vcc.cache.errors import CompileError
from vcc.engine.config.types import CompilationConfig
from vcc.engine.partition.split import split
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.in_place import RESTORE_IN_PLACE
from vcc.engine.passes.prove import Proof, prove
from vcc.engine.torch_shim.nodes import overload_name
from vcc.engine.torch_shim.twins import in_place_twin
from vcc.engine.types import Saved, Traced

toy, aten = torch.ops.toy, torch.ops.aten
Model = Callable[[Any, Tensor], Any]
CUT = PassContext(CompilationConfig(splitting_ops=("toy::turn", "toy::turn_")))


def operators(graph: Traced) -> list[str]:
    names = [overload_name(node.target) or "" for node in graph.graph.graph.nodes]
    return [name.removeprefix("toy::") for name in names if name.startswith("toy::")]


def after(model: Model, context: PassContext | None = None) -> tuple[list[str], Proof]:
    """Toy operators after the pass, and the proof that results are equal."""
    graph = traced(model, {"x": rows()}, {"x": {0: "T"}})
    proof = prove(graph, RESTORE_IN_PLACE, context)
    assert proof.exact
    return operators(graph), proof


def copies(left: list[str]) -> int:
    """Calls that still make a tensor of their own."""
    return sum(not name.startswith("turn_") for name in left)


def donated(m: Any, x: Tensor) -> Any:
    """Three calls, each of which gives its operand up."""
    y = toy.turn.donate(x * 2)
    y = toy.turn.donate(y + 1)
    return toy.turn.donate(y * 3)


def functional(m: Any, x: Tensor) -> Any:
    """Three calls whose operands are all read again."""
    a = x * 2
    b = toy.turn(a) + a
    c = toy.turn(b) + b
    return toy.turn(c) + c


def mixed(m: Any, x: Tensor) -> Any:
    a = x * 2
    b = toy.turn(a) + a
    c = toy.turn.donate(b)
    return toy.turn(c) + c


def dying(m: Any, x: Tensor) -> Any:
    """Written as functional calls, but nothing is read again."""
    return toy.turn(toy.turn(toy.turn(x * 2) + 1) * 3)


F9 = {"donated": (donated, 0), "functional": (functional, 3), "mixed": (mixed, 2)}


@pytest.mark.parametrize("name", F9)
def test_f9_copies_that_are_left_of_three_calls(name: str) -> None:
    """F9: 0 where operands are donated, 3 in functional form, 2 mixed."""
    model, wanted = F9[name]
    left, proof = after(model)
    assert len(left) == 3
    assert copies(left) == wanted
    assert len(proof.report.refused) == wanted
    assert all("is read again by add" in reason for reason in proof.report.refused)


def test_functional_code_needs_no_donation_where_nothing_is_read_again() -> None:
    left, proof = after(dying)
    assert left == ["turn_.default"] * 3
    assert proof.report.matches == 3


REUSED: dict[str, Model] = {
    "itself": lambda m, x: (y := x * 2, toy.turn.donate(y) + y)[1],
    "a view of it": lambda m, x: (y := x * 2, z := y[:, 1:], toy.turn.donate(y)[:, 1:] + z)[2],
    "it is returned": lambda m, x: (y := x * 2, toy.turn.donate(y), y)[1:],
}


@pytest.mark.parametrize("name", REUSED)
def test_f9_reuse_of_a_donated_value_is_an_error(name: str) -> None:
    with pytest.raises(CompileError, match="pass restore_in_place failed") as caught:
        after(REUSED[name])
    assert "gives memory up that is needed" in caught.value.why
    assert "is read again by" in caught.value.why


def test_an_input_of_the_step_is_written_only_when_it_is_donated() -> None:
    left, proof = after(lambda m, x: toy.turn(x) + 1)
    assert left == ["turn.default"]
    assert proof.report.refused == ("turn: x is an input of the step",)
    graph = traced(lambda m, x: toy.turn.donate(x) + 1, {"x": rows()})
    assert not prove(graph, RESTORE_IN_PLACE).exact, "the caller sees the write"
    assert operators(graph) == ["turn_.default"]


REFUSED: dict[str, tuple[Model, str]] = {
    "a view is read later": (
        lambda m, x: (y := x * 2, z := y[:, 1:], toy.turn(y)[:, 1:] + z)[2],
        "is read again by",
    ),
    "a row that is repeated": (
        lambda m, x: toy.turn((x[:1] * 2).expand(3, 4)),
        "other sizes or strides",
    ),
    "the same tensor twice": (
        lambda m, x: (y := x * 2, toy.blend(y, y)[0])[1],
        "shares memory with another argument",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_results_is_left_with_the_reason(name: str) -> None:
    model, reason = REFUSED[name]
    left, proof = after(model)
    assert not any(one.startswith(("turn_", "blend_")) for one in left)
    assert [reason in said for said in proof.report.refused] == [True]


def test_several_results_are_written_into_several_operands() -> None:
    def model(m: Any, x: Tensor) -> Any:
        a, b = toy.blend(x * 2, x + 1)
        return a.relu(), b.exp()

    left, proof = after(model)
    assert left == ["blend_.default"]
    assert proof.report.saved == Saved(2 * 6 * 4 * 4)


def test_operators_of_torch_are_left_to_the_compiler() -> None:
    graph = traced(lambda m, x: (x * 2).relu(), {"x": rows()})
    assert prove(graph, RESTORE_IN_PLACE).report.matches == 0
    assert in_place_twin(aten.relu.default) is not None


NO_TWIN = (toy.mix.default, toy.mix.scaled, toy.write.default, toy.turn_.default, len)


@pytest.mark.parametrize("target", NO_TWIN, ids=str)
def test_an_operator_without_an_in_place_form_has_none(target: Any) -> None:
    assert in_place_twin(target) is None


def test_at_a_cut_the_copies_into_the_buffers_of_the_step_go() -> None:
    """A splitting op that makes tensors is followed by a copy; one that writes is not."""
    inputs = {"x": torch.randn(5, 4)}
    counts = []
    for context in (None, CUT):
        graph = traced(dying, {"x": rows()}, {"x": {0: "T"}})
        if context is not None:
            report = prove(graph, RESTORE_IN_PLACE, context).report
            assert report.saved == Saved(3 * 3 * 6 * 4 * 4, 3)
        pieces = split(graph, ("toy::turn", "toy::turn_"), ())
        same_as_model(dying, pieces, graph, inputs)
        counts.append(len(pieces.program.of_role("buffer")))
        assert any(call.returns for call in pieces.program.calls) is (context is None)
    assert counts == [6, 3]


STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "turn": lambda y, first: toy.turn(y),
    "blend": lambda y, first: toy.blend(y, first)[0],
    "second": lambda y, first: toy.blend(first, y)[1],
    "work": lambda y, first: y * 2,
    "view": lambda y, first: y.view(-1).view(-1, 4),
    "write": lambda y, first: y.mul_(1.5),
    "again": lambda y, first: y + first,
}


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=8), st.booleans())
def test_any_chain_gives_equal_results(names: list[str], keep: bool) -> None:
    def model(m: Any, x: Tensor) -> Any:
        first = y = x * 1
        for name in names:
            y = STEPS[name](y, first)
        return (y, first + 0) if keep else y

    after(model)
