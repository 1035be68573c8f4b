"""Tracing: ranges that hold, ranges that were narrowed, and what cannot be one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.toys import module_of, rows, traced
from torch import Tensor

from vcc.cache.errors import CompileError
from vcc.engine.torch_shim.fake import fake_mode
from vcc.engine.trace.trace import Axis, TraceRequest, trace

T = {"x": {0: "T"}}
Model = Callable[..., Any]


def refused(model: Model, ranges: dict[str, tuple[int, int]] | None = None) -> CompileError:
    with pytest.raises(CompileError) as caught:
        traced(model, {"x": rows()}, T, ranges)
    assert int(caught.value.exit) == 8
    assert caught.value.hint
    return caught.value


def test_ranges_found_are_ranges_declared() -> None:
    graph = traced(lambda m, x: x * 2, {"x": rows()}, T, {"T": (3, 77)})
    assert list(graph.ranges.values()) == [(3, 77)]
    (size,) = graph.ranges
    assert str(graph.graph.graph.find_nodes(op="placeholder")[0].meta["val"].shape[0]) == size


def test_a_range_from_one_to_two_is_no_constant() -> None:
    """torch.export takes a size to be at least 2, so [1, 2] would be 2 and nothing else."""

    def model(m: Any, x: Tensor, y: Tensor) -> Tensor:
        return (x * 2 if x.shape[0] == 2 else x * 3) + y

    with pytest.raises(CompileError, match="narrowed"):
        traced(model, {"x": rows(2), "y": rows(2)}, {**T, "y": {0: "T"}}, {"T": (1, 2)})
    graph = traced(
        lambda m, x, y: x + y, {"x": rows(2), "y": rows(2)}, {**T, "y": {0: "T"}}, {"T": (1, 2)}
    )
    assert list(graph.ranges.values()) == [(1, 3)]


def test_sizes_that_no_operator_reads_keep_their_range() -> None:
    graph = traced(lambda m, x, y: x * 2, {"x": rows(), "y": rows()}, {**T, "y": {0: "U"}})
    assert sorted(graph.ranges.values()) == [(1, 64), (1, 64)]


def helper(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 8 else x * 3


NARROWED: dict[str, tuple[Model, str]] = {
    "branch": (lambda m, x: x * 2 if x.shape[0] > 8 else x * 3, "max=8"),
    "fixed": (lambda m, x: x.reshape(6, 4), "T = 6"),
    "even": (lambda m, x: x.reshape(2, -1), "2*_T"),
    "shorter": (lambda m, x: x[1:] * 2, "!= 1"),
}


@pytest.mark.parametrize("name", NARROWED)
def test_a_narrowed_range_shows_what_was_declared_and_found(name: str) -> None:
    model, found = NARROWED[name]
    error = refused(model)
    assert error.what == "tracing narrowed a declared size range"
    assert "declared T in [1, 64]" in error.why
    assert found in error.why.partition("found")[2]


def test_a_narrowed_range_names_the_line_that_compares() -> None:
    error = refused(lambda m, x: helper(x.relu()))
    line = helper.__code__.co_firstlineno + 1
    assert f"test_trace.py:{line} in helper" in error.why


def test_sizes_that_must_be_equal_are_told() -> None:
    with pytest.raises(CompileError, match="must always be equal") as caught:
        traced(lambda m, x, y: x + y, {"x": rows(), "y": rows()}, {**T, "y": {0: "U"}})
    assert "T in [1, 64], U in [1, 64]" in caught.value.why
    assert caught.value.hint.startswith("U and T are one size")
    assert "S@1-64" in caught.value.hint


def test_a_declared_range_may_make_a_branch_hold() -> None:
    graph = traced(lambda m, x: helper(x), {"x": rows()}, T, {"T": (2, 8)})
    assert list(graph.ranges.values()) == [(2, 8)]


DATA_DEPENDENT: dict[str, tuple[Model, str]] = {
    "rows chosen by value": (lambda m, x: x[x[:, 0] > 0].sum(0), "aten.index.Tensor makes u"),
    "positions of values": (lambda m, x: x.nonzero().sum(), "aten.nonzero.default makes u"),
    "a number read": (lambda m, x: x * x.sum().item(), "aten.item.default makes zuf"),
    "an op with a free size": (lambda m, x: torch.ops.toy.chosen(x).sum(0), "toy.chosen.default"),
}


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_a_size_or_number_that_depends_on_data_is_named_by_its_operator(name: str) -> None:
    model, word = DATA_DEPENDENT[name]
    error = refused(model)
    assert error.what == "a size or a number in the model depends on data"
    assert word in error.why


def data_branch(m: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * 2
    return x * 3


def leaves_torch(m: Any, x: Tensor) -> Tensor:
    return x * float(np.asarray(x).sum())


def fails(m: Any, x: Tensor) -> Tensor:
    raise KeyError("no such table")


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (data_branch, "if x.sum() > 0:"),
        (leaves_torch, "numpy"),
        (fails, "no such table"),
        (lambda m, x: x @ x, "same reduction dim"),
    ],
)
def test_what_is_no_single_graph_says_why(model: Model, word: str) -> None:
    error = refused(model)
    assert error.what == "the model cannot be traced into one graph"
    assert word in error.why
    assert "export()" not in error.why, "torch's advice about its own functions is left out"
    assert len(error.why) < 2100


def test_arguments_that_the_model_does_not_take_are_told() -> None:
    with pytest.raises(CompileError, match="cannot be traced"):
        traced(lambda m, x: x, {"y": rows()}, {"y": {0: "T"}})


def test_in_place_writes_and_opaque_ops_stay_as_they_are() -> None:
    def model(m: Any, x: Tensor, cache: Tensor) -> Tensor:
        torch.ops.toy.write(x, cache)
        return x.add_(1)

    graph = traced(model, {"x": rows(), "cache": torch.zeros(4)}, T)
    assert "torch.ops.toy.write.default" in graph.graph.code
    assert "torch.ops.aten.add_.Tensor" in graph.graph.code


def test_placeholders_know_their_role_and_target() -> None:
    weight = torch.nn.Parameter(torch.randn(4, 4), requires_grad=False)

    def model(m: Any, x: Tensor) -> Tensor:
        return x @ m.weight + m.table + torch.tensor([1.0, 2, 3, 4])

    graph = traced(model, {"x": rows()}, T, weight=weight, table=torch.arange(4.0))
    assert {(p.role, p.target) for p in graph.placeholders} == {
        ("weight", "weight"),
        ("constant", "table"),
        ("constant", "lifted_tensor_0"),
        ("input", "x"),
    }
    assert torch.equal(graph.constants["table"], torch.arange(4.0))
    assert torch.equal(graph.constants["lifted_tensor_0"], torch.tensor([1.0, 2, 3, 4]))


def fake_request(
    model: Model, constants: dict[str, Tensor], *, with_table: bool = False
) -> TraceRequest:
    mode = fake_mode()
    with mode:
        module = module_of(model, **({"table": torch.arange(4.0) * 2} if with_table else {}))
        example = torch.empty(6, 4)
    return TraceRequest(module, {"x": example}, T, (Axis("T", 1, 64),), constants, mode)


def test_a_constant_without_data_is_named() -> None:
    """Under fake tensors a computed buffer has a shape only."""

    def model(m: Any, x: Tensor) -> Tensor:
        return x * m.table

    with pytest.raises(CompileError, match="constant 'table' has no data") as caught:
        trace(fake_request(model, {}, with_table=True))
    assert "constructor" in caught.value.hint
    table = torch.tensor([0.0, 2, 4, 6])
    known = {"table": table, "unused": table}
    found = trace(fake_request(model, known, with_table=True)).constants
    assert list(found) == ["table"]
    assert torch.equal(found["table"], table)


def test_a_table_computed_from_sizes_is_no_constant() -> None:
    graph = trace(fake_request(lambda m, x: x + torch.arange(x.shape[0])[:, None], {}))
    assert graph.constants == {}


def test_a_literal_under_fake_tensors_keeps_its_data() -> None:
    graph = trace(fake_request(lambda m, x: x * torch.tensor([1.0, 2, 3, 4]), {}))
    (data,) = graph.constants.values()
    assert data.tolist() == [1.0, 2, 3, 4]


def test_constants_are_dense() -> None:
    strided = torch.arange(8.0).reshape(4, 2).t()
    graph = traced(lambda m, x: x @ m.table.t(), {"x": rows()}, T, table=strided)
    assert graph.constants["table"].is_contiguous()
    assert torch.equal(graph.constants["table"], strided)
