"""Binding a program's calls to memory: what each call gets, results, and what is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.programs import chain, value
from torch import Tensor

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.program import Call, Program, Symbol
from vcc.engine.runtime import binding
from vcc.engine.runtime.binding import Binder
from vcc.engine.runtime.memory import StepMemory

SIZES = {"T": 64}


def one_call(call: Call, *buffers: str) -> tuple[Program, StepMemory]:
    values = [value("x", "input", ["T", 4]), *(value(b, "buffer", ["T", 4]) for b in buffers)]
    program = Program(1, [Symbol("T", 1, 64, "x", 0)], values, [call], list(buffers))
    return program, StepMemory(program, {}, SIZES)


def test_a_piece_gets_one_list_of_views_at_the_sizes_of_the_step() -> None:
    program = chain([8, 4])
    memory, got = StepMemory(program, {}, SIZES), []
    binder = Binder(program, memory, {"p0": got.append}, {})
    binder.calls((3,))[0]()
    assert [tuple(t.shape) for t in got[0]] == [(3, 8), (3, 4)]
    assert got[0][0].data_ptr() == memory.view("x", {"T": 64}).data_ptr()


def test_an_op_gets_tensors_and_literals_by_position() -> None:
    got: list[Any] = []
    call = Call("op", "toy::op", ["x", [None], [2], "y", [0.5], [True]], ["y"])
    program, memory = one_call(call, "y")
    Binder(program, memory, {}, {"toy::op": lambda *args: got.extend(args)}).calls((2,))[0]()
    assert [type(a) for a in got] == [Tensor, type(None), int, Tensor, float, bool]


@pytest.mark.parametrize("count", [1, 2])
def test_results_of_an_op_are_copied_into_its_buffers(count: int) -> None:
    outs = [f"y{i}" for i in range(count)]
    program, memory = one_call(Call("op", "toy::op", ["x"], outs, returns=True), *outs)
    memory.view("x", {"T": 2}).fill_(3.0)

    def op(x: Tensor) -> Any:
        results = tuple(x * (i + 1) for i in range(count))
        return results if count > 1 else results[0]

    Binder(program, memory, {}, {"toy::op": op}).calls((2,))[0]()
    for index, name in enumerate(outs):
        assert memory.view(name, {"T": 2}).eq(3.0 * (index + 1)).all()


def test_an_op_that_returns_another_number_of_results_is_an_error() -> None:
    program, memory = one_call(Call("op", "toy::op", ["x"], ["a", "b"], returns=True), "a", "b")
    binder = Binder(program, memory, {}, {"toy::op": lambda x: (x, x, x)})
    with pytest.raises(ValueError, match="longer"):
        binder.calls((2,))[0]()


@pytest.mark.parametrize("kind", ["piece", "op"])
def test_a_target_that_the_artifact_lacks_is_named(kind: Any) -> None:
    program, memory = one_call(Call(kind, "nobody", ["x", "y"], ["y"]), "y")
    with pytest.raises(IntegrityError, match="calls nobody") as caught:
        Binder(program, memory, {}, {})
    assert kind in caught.value.why


def test_bindings_of_the_last_few_sizes_are_kept() -> None:
    program = chain([8, 4])
    binder = Binder(program, StepMemory(program, {}, SIZES), {"p0": lambda args: []}, {})
    first = binder.calls((1,))
    assert binder.calls((1,)) is first
    for tokens in range(2, 2 + binding.KEPT):
        binder.calls((tokens,))
    assert binder.calls((1,)) is not first


def test_calls_that_name_one_value_share_its_view() -> None:
    program = chain([8, 4, 2])
    seen: list[list[Tensor]] = []
    pieces = {"p0": seen.append, "p1": seen.append}
    for call in Binder(program, StepMemory(program, {}, SIZES), pieces, {}).calls((2,)):
        call()
    assert seen[0][1] is seen[1][0]


def test_a_zero_sized_value_binds() -> None:
    values = [value("x", "input", ["T", 0]), value("y", "buffer", ["T", 0])]
    call = Call("piece", "p", ["x", "y"], ["y"])
    program = Program(1, [Symbol("T", 1, 64, "x", 0)], values, [call], ["y"])
    got: list[list[Tensor]] = []
    Binder(program, StepMemory(program, {}, SIZES), {"p": got.append}, {}).calls((5,))[0]()
    assert [tuple(t.shape) for t in got[0]] == [(5, 0), (5, 0)]
    assert torch.equal(*got[0])
