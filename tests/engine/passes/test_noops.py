"""No-op elimination: what goes, what stays, what is refused, and equal results."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from support.toys import rows, traced
from torch import Tensor
from torch.fx import Interpreter

from vcc.cache.errors import CompileError
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.noops import eliminate_noops
from vcc.engine.torch_shim.nodes import overload_name
from vcc.engine.types import Saved, Traced

aten = torch.ops.aten
Model = Callable[[Any, Tensor], Any]


def operators(graph: Traced) -> list[str]:
    """The operators of a trace in order, without namespace."""
    names = (overload_name(node.target) for node in graph.graph.graph.nodes)
    return [name.partition("::")[2] for name in names if name]


def after(model: Model, *, tokens: Sequence[int] = (1, 5, 64)) -> list[str]:
    """Trace, run the pass, check equal results on random inputs, return what is left."""
    graph = traced(model, {"x": rows()}, {"x": {0: "T"}})
    before = copy.deepcopy(graph.graph)
    eliminate_noops(graph.graph, PassContext())
    graph.graph.graph.lint()
    graph.graph.recompile()
    for count in tokens:
        x = torch.randn(count, 4)
        mine, theirs = x.clone(), x.clone()
        torch.testing.assert_close(
            Interpreter(graph.graph).run(mine), Interpreter(before).run(theirs), rtol=0, atol=0
        )
        assert torch.equal(mine, theirs)
    return operators(graph)


REMOVED: dict[str, Model] = {
    "f1 slice over everything": lambda m, x: x[:].relu(),
    "slice over every column": lambda m, x: x[:, 0:4].relu(),
    "f2 identity reshape": lambda m, x: aten.reshape(x, [x.shape[0], 4]).relu(),
    "f2 identity view": lambda m, x: aten.view(x, [x.shape[0], 4]).relu(),
    "f2 reshape and back": lambda m, x: x.reshape(-1).reshape(x.shape[0], 4).relu(),
    "f2 view and back": lambda m, x: x.view(-1).view(x.shape[0], 4).relu(),
    "cast to its own type": lambda m, x: aten.to.dtype(x, torch.float32).relu(),
    "contiguous of dense": lambda m, x: aten.contiguous(x).relu(),
    "alias": lambda m, x: aten.alias(x).relu(),
    "detach": lambda m, x: x.detach().relu(),
    "expand to its own shape": lambda m, x: x.expand(x.shape[0], 4).relu(),
    "dropout of nothing": lambda m, x: aten.dropout(x, 0.0, True).relu(),
    "dropout outside training": lambda m, x: aten.dropout(x, 0.5, False).relu(),
    "cast to its own place": lambda m, x: aten.to.device(x, torch.device("cpu"), x.dtype).relu(),
    "cast to its own layout": lambda m, x: aten.to.dtype_layout(x, dtype=x.dtype).relu(),
    "cast like another": lambda m, x: aten.to.other(x, x).relu(),
    "product with one": lambda m, x: (x * 1.0).relu(),
    "quotient by one": lambda m, x: (x / 1).relu(),
    "padding of nothing": lambda m, x: aten.pad(x, [0, 0, 0, 0]).relu(),
    "detach that marks": lambda m, x: aten.detach_(x * 1.0).relu(),
}


@pytest.mark.parametrize("name", REMOVED)
def test_what_changes_nothing_goes(name: str) -> None:
    """F1, F2: the operator disappears and the result stays, at every size."""
    left = [op for op in after(REMOVED[name]) if not op.startswith(("sym_size", "view", "reshape"))]
    assert left == ["relu.default"]


KEPT: dict[str, tuple[Model, str]] = {
    "f1 slice to n-1": (lambda m, x: x[:, :3].relu(), "slice.Tensor"),
    "f1 slice with end -1": (lambda m, x: x[:, 0:-1].relu(), "slice.Tensor"),
    "slice with a step": (lambda m, x: x[:, ::2].relu(), "slice.Tensor"),
    "f2 reshape": (lambda m, x: x.reshape(-1).relu(), "reshape.default"),
    "cast": (lambda m, x: aten.to.dtype(x, torch.float64).relu(), "to.dtype"),
    "cast that must copy": (
        lambda m, x: aten.to.dtype(x, torch.float32, False, True).relu(),
        "to.dtype",
    ),
    "contiguous of a transpose": (lambda m, x: aten.contiguous(x.t()).relu(), "contiguous.default"),
    "contiguous in another format": (
        lambda m, x: aten.contiguous(x[None, None], memory_format=torch.channels_last).relu(),
        "contiguous.default",
    ),
    "expand": (lambda m, x: x[:, None].expand(x.shape[0], 3, 4).relu(), "expand.default"),
    "clone": (lambda m, x: x.clone().relu(), "clone.default"),
    "cast to a place that must copy": (
        lambda m, x: aten.to.device(x, torch.device("cpu"), x.dtype, False, True).relu(),
        "to.device",
    ),
    "cast that makes rows dense": (
        lambda m, x: aten.to.dtype(
            x[None, None].float(), x.dtype, memory_format=torch.channels_last
        ),
        "to.dtype",
    ),
    "product with one of another type": (lambda m, x: x.int() * 1.0, "mul.Tensor"),
    "product with one as a tensor": (lambda m, x: x * torch.ones(1), "mul.Tensor"),
    "product with two": (lambda m, x: (x * 2).relu(), "mul.Tensor"),
    "sum with zero, which turns -0.0 into 0.0": (lambda m, x: (x + 0.0).relu(), "add.Tensor"),
    "padding": (lambda m, x: aten.pad(x, [0, 1]).relu(), "pad.default"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_changes_something_stays(name: str) -> None:
    model, operator = KEPT[name]
    assert operator in after(model)


def test_a_chain_of_reshapes_becomes_one() -> None:
    """F2: reshape → reshape → reshape leaves one on the base; views alike."""
    reshapes = after(lambda m, x: x.reshape(-1).reshape(2, -1, 2).reshape(-1, 2).relu())
    assert reshapes.count("reshape.default") == 1
    views = after(lambda m, x: x.view(-1).view(-1, 2, 2).view(-1, 2).relu())
    assert views.count("view.default") == 1


def test_a_chain_that_is_used_in_the_middle_keeps_the_middle() -> None:
    def model(m: Any, x: Tensor) -> Any:
        middle = x.view(-1, 2)
        return middle.relu(), middle.view(-1).relu()

    assert after(model).count("view.default") == 2


def test_asserts_of_the_trace_go() -> None:
    graph = traced(lambda m, x: x.to(torch.float64).relu(), {"x": rows()}, {"x": {0: "T"}})
    assert "_assert_tensor_metadata.default" in operators(graph)
    outcome = eliminate_noops(graph.graph, PassContext())
    assert "_assert_tensor_metadata.default" not in operators(graph)
    assert outcome.matches == 1


GUARDED: dict[str, Model] = {
    "the result is written": lambda m, x: x[:].add_(1) + x,
    "the source is written": lambda m, x: (y := x * 2, z := y.view(-1, 4), y.mul_(3), z + 1)[-1],
    "a copy whose source is written through another view": lambda m, x: (
        y := x * 2,
        z := y.t().reshape(-1).reshape(4, -1),
        y.add_(1),
        z + 1,
    )[-1],
    "a copy that is written through another view": lambda m, x: (
        y := (x * 2).t(),
        z := y.reshape(-1).reshape(4, -1),
        z[0].add_(1),
        z + y,
    )[-1],
}


@pytest.mark.parametrize("name", GUARDED)
def test_memory_that_is_written_in_place_is_left_alone_and_said(name: str) -> None:
    graph = traced(GUARDED[name], {"x": rows()}, {"x": {0: "T"}})
    outcome = eliminate_noops(graph.graph, PassContext())
    assert any("written in place" in reason for reason in outcome.refused)
    after(GUARDED[name])


def test_a_write_through_a_later_view_does_not_change_the_result() -> None:
    """Views are aliases either way: only copies could break, and none is removed."""
    after(lambda m, x: (y := (x * 2).view(-1), y.view(-1, 2).add_(1), y.relu())[-1])
    after(lambda m, x: (y := (x * 2).view(-1), z := y.view(-1, 2), y.add_(1), z.relu())[-1])
    after(lambda m, x: (y := aten.contiguous(x * 2), z := y[:], z.view(-1).add_(1), y + z)[-1])


def test_dead_code_is_the_business_of_another_pass() -> None:
    left = after(lambda m, x: (x.exp(), x.relu())[1])
    assert left == ["exp.default", "relu.default"]


def test_copies_that_go_are_counted_as_saved() -> None:
    graph = traced(lambda m, x: (x * 1.0)[:].relu(), {"x": rows()}, {"x": {0: "T"}})
    outcome = eliminate_noops(graph.graph, PassContext())
    assert outcome.saved == Saved(2 * 6 * 4 * 4, 1), "read and written once less; a view is free"


def test_matches_are_counted() -> None:
    graph = traced(lambda m, x: x[:].view(-1, 4)[:].relu(), {"x": rows()}, {"x": {0: "T"}})
    assert eliminate_noops(graph.graph, PassContext()).matches >= 3
    assert eliminate_noops(graph.graph, PassContext()).matches == 0, "nothing is left to do"


def write_first(x: Tensor, first: Tensor) -> Tensor:
    first.mul_(1.5)
    return x


STEPS: dict[str, Callable[..., Tensor]] = {
    "flat": lambda x: x.reshape(-1),
    "pairs": lambda x: x.reshape(-1, 2),
    "fours": lambda x: x.reshape(-1, 4),
    "cube": lambda x: x.reshape(-1, 2, 2),
    "all": lambda x: x[:],
    "flip": lambda x: x.flip(0),
    "cast": lambda x: x.to(torch.float32),
    "dense": lambda x: x.contiguous(),
    "work": lambda x: x * 2,
    "write": lambda x: x.mul_(1.5),
    "swap": lambda x: x.reshape(-1, 4).t(),
    "write the first": write_first,
}


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=7))
def test_any_chain_gives_equal_results(names: list[str]) -> None:
    def model(m: Any, x: Tensor) -> Any:
        first = y = x * 1
        seen = []
        for name in names:
            y = STEPS[name](y, first) if name.startswith("write the") else STEPS[name](y)
            seen.append(y.sum())
        return y, torch.stack(seen)

    try:
        after(model, tokens=(1, 6))
    except CompileError:
        reject()  # a reshape of a transpose, which exists for some sizes only
