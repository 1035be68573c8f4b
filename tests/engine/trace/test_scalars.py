"""Numbers that a model writes or makes tensors of: no constant on the CPU is left in a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.toys import rows, traced
from torch import Tensor
from torch.fx import Interpreter

from vcc.engine.trace.scalars import FilledNumbers

aten = torch.ops.aten


def written(m: Any, x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = 5
    y[:, 1] = 0.1
    y[0, 0] = -2.5
    return y


def shown(graph: Any) -> list[Any]:
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
def test_a_number_that_is_written_is_no_constant(dtype: torch.dtype) -> None:
    x = rows().to(dtype)
    found = traced(written, {"x": x}, {"x": {0: "T"}})
    assert found.constants == {}
    assert [one for one in shown(found.graph) if one is aten.lift_fresh_copy.default] == []
    result = Interpreter(found.graph).run(x)
    assert torch.equal(result[0] if isinstance(result, tuple) else result, written(None, x))


def test_a_constant_that_is_read_otherwise_stays() -> None:
    def added(m: Any, x: Tensor) -> Tensor:
        y = x.clone()
        number = torch.tensor(7)
        y[0] = number
        return y + number

    found = traced(added, {"x": rows()}, {"x": {0: "T"}})
    assert [one.item() for one in found.constants.values()] == [7]
    x = rows() + 1
    result = Interpreter(found.graph).run(*found.constants.values(), x)
    assert torch.equal(result[0] if isinstance(result, tuple) else result, added(None, x))


@pytest.mark.parametrize("number", [True, 3, -2.5])
@pytest.mark.parametrize("given", [{}, {"dtype": torch.bfloat16}, {"device": "meta"}])
def test_a_tensor_of_a_number_is_filled(number: Any, given: dict[str, Any]) -> None:
    with FilledNumbers():
        mine = torch.tensor(number, **given)
    theirs = torch.tensor(number, **given)
    assert (mine.dtype, mine.shape, mine.device) == (theirs.dtype, theirs.shape, theirs.device)
    assert mine.is_meta or torch.equal(mine, theirs)


@pytest.mark.parametrize("made", [[1, 2], [], [[1.5]]])
def test_a_tensor_of_several_numbers_is_left_alone(made: Any) -> None:
    with FilledNumbers():
        assert torch.equal(torch.tensor(made), torch.tensor(made))
        assert torch.tensor(2.0, requires_grad=True).requires_grad


def test_the_device_of_numbers_is_the_default_one() -> None:
    with torch.device("meta"), FilledNumbers():
        assert torch.tensor(3).is_meta
        assert not torch.tensor(3, device="cpu").is_meta
