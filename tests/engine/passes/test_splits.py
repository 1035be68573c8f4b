"""Split coalescing: equal splits are one, slices that make up a dimension are one split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toys import rows, traced
from torch import Tensor

from vcc.engine.passes.prove import Proof, prove
from vcc.engine.passes.splits import COALESCE_SPLITS
from vcc.engine.torch_shim.nodes import overload_name
from vcc.engine.types import Traced

Model = Callable[[Any, Tensor], Any]


def after(model: Model, width: int = 8) -> tuple[list[str], Proof]:
    """Operators that cut, after the pass, and the proof that results are equal."""
    graph = traced(model, {"x": rows(6, width)}, {"x": {0: "T"}})
    proof = prove(graph, COALESCE_SPLITS)
    assert proof.exact
    assert proof.settled
    return cuts(graph), proof


def cuts(graph: Traced) -> list[str]:
    names = [overload_name(node.target) or "" for node in graph.graph.graph.nodes]
    wanted = ("slice", "split", "chunk", "unbind")
    return [name.removeprefix("aten::") for name in names if any(word in name for word in wanted)]


MADE_ONE: dict[str, Model] = {
    "halves": lambda m, x: x[:, :4].relu() + x[:, 4:].exp(),
    "halves in the other order": lambda m, x: x[:, 4:].exp() + x[:, :4].relu(),
    "three parts": lambda m, x: (x[:, :4].relu(), x[:, 4:6].exp(), x[:, 6:].cos()),
    "a part that is read twice": lambda m, x: (x[:, :4] + x[:, 4:], x[:, :4] * 2),
    "bounds from the end": lambda m, x: x[:, :-4].relu() + x[:, -4:].exp(),
    "a dimension from the end": lambda m, x: x[..., :4].relu() + x[..., 4:].exp(),
    "a written part": lambda m, x: (y := x * 2, y[:, :4].add_(1), y[:, 4:].exp(), y)[2:],
}


@pytest.mark.parametrize("name", MADE_ONE)
def test_slices_that_make_up_a_dimension_are_one_split(name: str) -> None:
    left, proof = after(MADE_ONE[name])
    assert left == ["split_with_sizes.default"]
    assert proof.report.matches >= 1


def test_a_part_of_a_split_is_split_again() -> None:
    """As heads that are rotated in part are cut: the part that rotates is cut in halves."""

    def model(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        turned, kept = x[:, :4], x[:, 4:]
        return torch.cat((-turned[:, 2:], turned[:, :2]), 1), kept.relu()

    left, proof = after(model)
    assert left == ["split_with_sizes.default"] * 2
    assert proof.report.matches == 2


EQUAL: dict[str, Model] = {
    "split": lambda m, x: (x.split([4, 4], 1)[0] + x.split([4, 4], 1)[1], x * 2),
    "chunk": lambda m, x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1],
    "slice": lambda m, x: x[:, 2:4] * x[:, 2:4].exp(),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_cuts_of_one_tensor_are_one(name: str) -> None:
    left, proof = after(EQUAL[name])
    assert len(left) == 1
    assert proof.report.matches == 1


LEFT: dict[str, tuple[Model, str]] = {
    "a gap": (lambda m, x: x[:, :2].relu() + x[:, 6:].exp(), "leave a gap at 2"),
    "a gap at the end": (lambda m, x: x[:, :2].relu() + x[:, 2:4].exp(), "leave a gap at 4"),
    "an overlap": (lambda m, x: x[:, :6].relu() + x[:, 2:].exp(), "overlap at 2"),
    "one part": (lambda m, x: x[:, :2].relu(), ""),
    "with a step": (lambda m, x: x[:, ::2].relu() + x[:, 1::2], ""),
    "of two tensors": (lambda m, x: x[:, :4].relu() + (x * 2)[:, 4:], ""),
    "of a dimension of any size": (
        lambda m, x: (y := x.repeat(2, 1), y[: x.shape[0]] + y[x.shape[0] :])[1],
        "",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_slices_stay_and_near_matches_are_told(name: str) -> None:
    model, reason = LEFT[name]
    left, proof = after(model)
    assert all(one == "slice.Tensor" for one in left)
    assert proof.report.matches == 0
    assert [reason in said for said in proof.report.refused] == [True] * bool(reason)


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_any_way_to_cut_a_dimension_gives_equal_results(sizes: list[int], order: Any) -> None:
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    bounds = list(zip([0, *ends], ends, strict=False))
    order.shuffle(bounds)

    def model(m: Any, x: Tensor) -> Any:
        return torch.stack([x[:, begin:end].sum() for begin, end in bounds])

    left, _ = after(model, width=sum(sizes))
    assert len(left) == 1
