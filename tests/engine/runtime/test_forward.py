"""A module's forward on fixed memory: inputs are checked once, outputs are views."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.toys import rows, traced
from torch import Tensor
from torch.fx import Interpreter

from vcc.cache.errors import UsageError
from vcc.engine.partition.split import split
from vcc.engine.runtime.binding import Binder
from vcc.engine.runtime.forward import ForwardRunner
from vcc.engine.runtime.memory import StepMemory


def model(m: Any, x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.toy.mix(x * 2) + 1, ids + 1


def runner() -> ForwardRunner:
    """`model` with x [1-16, 4] and ids [3] int64, its pieces run eagerly."""
    arguments = {"x": rows(), "ids": torch.arange(3)}
    graph = traced(model, arguments, {"x": {0: "T"}}, {"T": (1, 16)})
    pieces = split(graph, ("toy::mix",), ())
    memory = StepMemory(pieces.program, {}, {s.name: s.high for s in pieces.program.symbols})
    graphs = {p.id: Interpreter(p.graph) for p in pieces.unique}
    run = {name: lambda args, g=g: g.run(*args) for name, g in graphs.items()}
    ops = {"toy::mix.default": torch.ops.toy.mix.default}
    return ForwardRunner(pieces.program, memory, Binder(pieces.program, memory, run, ops))


def inputs(tokens: int = 5) -> dict[str, Tensor]:
    return {"x": torch.randn(tokens, 4), "ids": torch.arange(3)}


@pytest.mark.parametrize("tokens", [1, 5, 16])
def test_outputs_are_those_of_the_module(tokens: int) -> None:
    given = inputs(tokens)
    found = runner()(given)
    expected = model(None, **given)
    assert list(found) == ["output_0", "output_1"]
    torch.testing.assert_close(list(found.values()), list(expected))


def test_inputs_are_copied_and_may_be_strided() -> None:
    given = {"x": torch.randn(4, 5).t(), "ids": torch.arange(6)[::2]}
    before = given["x"].clone()
    found = runner()(given)
    torch.testing.assert_close(found["output_0"], model(None, **given)[0])
    assert torch.equal(given["x"], before)


def test_inputs_that_require_gradients_leave_none_behind() -> None:
    given = {"x": torch.randn(5, 4, requires_grad=True), "ids": torch.arange(3)}
    found = runner()(given)["output_0"]
    assert not found.requires_grad
    assert found.grad_fn is None


def test_outputs_stay_at_one_address() -> None:
    run = runner()
    one = run(inputs(3))["output_0"]
    assert run(inputs(9))["output_0"].data_ptr() == one.data_ptr()


def test_a_call_inside_a_call_is_refused() -> None:
    """G114: two calls would write one memory."""
    run, given = runner(), inputs()
    with run.turn.taken(), pytest.raises(UsageError, match="running already"):
        run(given)
    assert run(given)["output_0"].shape == (5, 4)


def jagged() -> torch.Tensor:
    parts = [torch.zeros(3, 4), torch.zeros(2, 4)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


BAD: dict[str, tuple[Any, str]] = {
    "missing": (lambda g: g.pop("ids"), "missing: ids"),
    "unknown": (lambda g: g.update(y=rows()), "unknown: y"),
    "too long": (lambda g: g.update(x=torch.zeros(17, 4)), "dimension 0 of x is 17"),
    "empty": (lambda g: g.update(x=torch.zeros(0, 4)), "dimension 0 of x is 0"),
    "too wide": (lambda g: g.update(x=torch.zeros(5, 5)), r"it must be \[5, 4\]"),
    "another rank": (lambda g: g.update(x=torch.zeros(5)), "has 1 dimensions"),
    "another type": (lambda g: g.update(x=torch.zeros(5, 4).double()), "float64"),
    "integers of another width": (lambda g: g.update(ids=torch.zeros(3).int()), "int32"),
    "a fixed size": (lambda g: g.update(ids=torch.arange(4)), r"it must be \[3\]"),
    "another device": (lambda g: g.update(x=torch.zeros(5, 4, device="meta")), "on meta"),
    "sparse": (lambda g: g.update(x=torch.zeros(5, 4).to_sparse()), "torch.sparse_coo"),
    "sparse by row": (lambda g: g.update(x=torch.zeros(5, 4).to_sparse_csr()), "sparse_csr"),
    "of another library": (lambda g: g.update(x=torch.zeros(5, 4).to_mkldnn()), "_mkldnn"),
    "nested": (lambda g: g.update(x=torch.nested.nested_tensor([torch.zeros(4)])), "is nested"),
    "jagged": (lambda g: g.update(x=jagged()), "is nested"),
    "no tensor": (lambda g: g.update(x=[[0.0] * 4]), "input x is no tensor"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_input_that_the_code_was_not_made_for_is_refused(name: str) -> None:
    """G107, G108."""
    given = inputs()
    change, word = BAD[name]
    change(given)
    with pytest.raises(UsageError, match=word):
        runner()(given)
