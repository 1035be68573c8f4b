"""Probes of what passes need of private torch: fake calls, sizes of a trace, twins of operators."""

from __future__ import annotations

import pytest
import torch
from support.toys import rows, traced
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, UnsupportedOperatorException

from vcc.engine.torch_shim import collectives, fake, fake_calls, twins

aten = torch.ops.aten


@pytest.fixture(scope="module")
def value() -> Tensor:
    """The fake value of an input of T rows, 6 of them in the example."""
    found = traced(lambda module, x: x + 1, {"x": rows()}, {"x": {0: "T"}})
    node = next(one for one in found.graph.graph.nodes if one.op == "placeholder")
    fake_value: Tensor = node.meta["val"]
    return fake_value


def test_collectives_functional_all_reduce() -> None:
    """The names, and the arguments that the pass reads: tensor, kind, group."""
    begins, waits = collectives.functional_all_reduce()
    assert [one.name for one in begins._schema.arguments] == ["input", "reduce_op", "group_name"]
    assert len(waits._schema.arguments) == 1


def test_fake_calls_fake_call(value: Tensor) -> None:
    found = fake_calls.fake_call(aten.add.Tensor, None, value, value)
    assert type(found) is type(value)
    assert found.shape == value.shape
    made = fake_calls.fake_call(aten.full.default, value, [2], 1.0)
    assert type(made) is type(value)


def test_fake_calls_fake_results() -> None:
    pair, refused = torch.ops.aten.topk.default, torch.ops.aten.mm.default
    found = fake_calls.fake_results(pair, (torch.ones(3, 5), 2), {"dim": 0})
    assert [tuple(one.shape) for one in found] == [(2, 5), (2, 5)]
    assert all(type(one) is FakeTensor for one in found)
    assert fake_calls.fake_results(refused, (torch.ones(3, 5), torch.ones(3, 5)), {}) == []


def test_fake_calls_hinted(value: Tensor) -> None:
    assert fake_calls.hinted(value.shape[0] * 2) == 12
    assert fake_calls.hinted(5) == 5


def test_fake_calls_symbols_of(value: Tensor) -> None:
    assert list(fake_calls.symbols_of([value]).values()) == [6]


def test_fake_calls_sized(value: Tensor) -> None:
    (symbol,) = fake_calls.symbols_of([value])
    assert fake_calls.sized(value.shape[0] + 1, {symbol: 9}) == 10
    assert fake_calls.sized(4, {}) == 4


def test_fake_calls_watched(value: Tensor) -> None:
    with fake_calls.watched(value) as quiet:
        assert value.shape[1] == 4
    assert quiet == []
    with fake_calls.watched(value) as said:
        bool(value.shape[0] * 7 == 49)
    assert said != []


def test_fake_operator_without_fake() -> None:
    error = UnsupportedOperatorException(aten.add.Tensor)
    assert fake.operator_without_fake(error) == "aten::add"
    assert fake.operator_without_fake(ValueError("x")) == ""


def test_twins_in_place_twin() -> None:
    found = twins.in_place_twin(aten.relu.default)
    assert found is not None
    assert (found.target, found.written) == (aten.relu_.default, (0,))
    assert twins.in_place_twin(aten.relu_.default) is None
    assert twins.in_place_twin(aten.mm.default) is None


def test_twins_is_donating() -> None:
    assert not twins.is_donating(aten.relu.default)
    assert not twins.is_donating(len)


def test_twins_may_view() -> None:
    assert twins.may_view(aten.view.default)
    assert not twins.may_view(aten.add.Tensor)
