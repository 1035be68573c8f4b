"""Clone elimination: a copy goes where nobody could tell it from its source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toys import rows, traced
from torch import Tensor

from vcc.engine.passes.clones import ELIMINATE_CLONES
from vcc.engine.passes.prove import Proof, prove
from vcc.engine.torch_shim.nodes import overload_name
from vcc.engine.types import Saved

Model = Callable[[Any, Tensor], Any]


def after(model: Model, **parts: Any) -> tuple[int, Proof]:
    """Copies that are left, and the proof that results are equal."""
    graph = traced(model, {"x": rows()}, {"x": {0: "T"}}, **parts)
    proof = prove(graph, ELIMINATE_CLONES)
    assert proof.exact
    names = [overload_name(node.target) or "" for node in graph.graph.graph.nodes]
    return sum("clone" in name or "lift_fresh" in name for name in names), proof


def test_a_copy_that_nobody_writes_goes_and_its_bytes_are_counted() -> None:
    left, proof = after(lambda m, x: (x * 2).clone().relu())
    assert left == 0
    assert proof.report.matches == 1
    assert proof.report.saved == Saved(2 * 6 * 4 * 4, 1), "read and written once less, at T = 6"


def test_a_copy_of_a_lifted_constant_goes() -> None:
    left, proof = after(lambda m, x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert (left, proof.report.matches) == (0, 1)


def test_a_chain_of_copies_goes() -> None:
    assert after(lambda m, x: (x * 2).clone().clone().clone().relu())[0] == 0


KEPT: dict[str, tuple[Model, str]] = {
    "the copy is written": (lambda m, x: (y := x.clone(), y.add_(1), y + x)[2], "its result is"),
    "the source is written": (
        lambda m, x: (y := x * 2, z := y.clone(), y.add_(1), z + y)[3],
        "its source is",
    ),
    "a view of the copy is written": (
        lambda m, x: (y := x.clone(), y.view(-1)[:2].add_(1), y + x)[2],
        "its result is",
    ),
    "a view of the source is written": (
        lambda m, x: (y := x * 2, z := y.clone(), y[:1].add_(1), z + y)[3],
        "its source is",
    ),
    "it makes rows dense": (
        lambda m, x: x.t().clone(memory_format=torch.contiguous_format).view(-1),
        "it changes strides",
    ),
    "an input is returned": (lambda m, x: x.clone(), "its source is an input"),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_copy_that_makes_a_difference_stays_and_says_why(name: str) -> None:
    model, reason = KEPT[name]
    left, proof = after(model)
    assert left == 1
    assert [reason in said for said in proof.report.refused] == [True]


STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "clone": lambda y, first: y.clone(),
    "work": lambda y, first: y * 2,
    "view": lambda y, first: y.view(-1).view(-1, 4),
    "turn": lambda y, first: y.flip(0),
    "write": lambda y, first: y.mul_(1.5),
    "write the first": lambda y, first: (first.add_(1), y)[1],
}


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=8))
def test_any_chain_of_copies_and_writes_gives_equal_results(names: list[str]) -> None:
    def model(m: Any, x: Tensor) -> Any:
        first = y = x * 1
        seen = []
        for name in names:
            y = STEPS[name](y, first)
            seen.append(y.sum())
        return y + first, torch.stack(seen)

    after(model)
