"""The eager back end: lists of operator calls give what the graph gives, and run nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from support.toys import rows, traced
from torch import Tensor
from torch.fx import Interpreter

from vcc.cache.errors import CompileError, IntegrityError
from vcc.engine.compile.op_lists import op_list
from vcc.engine.graphs.op_list import encode
from vcc.engine.partition.split import split
from vcc.engine.runtime.op_list import open_op_list

TOKENS = {"x": {0: "T"}}


def piece_of(function: Any, **parts: Any) -> Any:
    (piece,) = split(traced(function, {"x": rows()}, TOKENS, **parts), (), ()).unique
    return piece


MODELS = {
    "arithmetic": lambda m, x: (x * 2 + 1).relu().softmax(-1),
    "sizes": lambda m, x: x.reshape(x.shape[0] * 4) * (x.shape[0] ** -0.5) + x.shape[0] // 2,
    "tuples": lambda m, x: torch.cat(list(x.split(2, dim=1))[::-1], dim=1),
    "dtypes": lambda m, x: (x.to(torch.bfloat16) @ torch.eye(4, dtype=torch.bfloat16)).float(),
    "infinity": lambda m, x: torch.full_like(x, float("-inf")).maximum(x),
    "memory formats": lambda m, x: x.t().clone(memory_format=torch.contiguous_format),
    "written": lambda m, x: x.clone().add_(1).mul_(x),
    "indices": lambda m, x: x[torch.arange(x.shape[0]).flip(0)],
    "booleans": lambda m, x: torch.where(x > 0, x, -x),
}


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("tokens", [1, 7])
def test_a_list_equals_its_graph(case: str, tokens: int) -> None:
    piece = piece_of(MODELS[case])
    run = open_op_list(encode(op_list(piece.graph)))
    x = torch.randn(tokens, 4)
    outs = [out_like(spec, tokens) for spec in piece.arguments[len(piece.arguments) - 1 :]]
    want = [out.clone() for out in outs]
    Interpreter(piece.graph).run(x, *want)
    run([x, *outs])
    assert torch.equal(outs[0], want[0])


def out_like(spec: Any, tokens: int) -> Tensor:
    sizes = [tokens if one == "s0" else one for one in spec.shape]
    shape = [one if isinstance(one, int) else tokens * 4 for one in sizes]
    return torch.empty(shape, dtype=spec.dtype)


def test_an_operator_of_a_stranger_is_refused_at_build_by_name() -> None:
    piece = piece_of(lambda m, x: torch.ops.toy.mix(x) * 2)
    with pytest.raises(CompileError, match=r"toy::mix\.default, which the eager") as caught:
        op_list(piece.graph)
    assert "splitting_ops" in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "name"),
    [("dtype", "load"), ("dtype", "_dynamo"), ("layout", "float32"), ("device", "no such"),
     ("float", "many"), ("memory_format", "strided")],
)  # fmt: skip
def test_an_argument_of_another_kind_is_refused(kind: str, name: str) -> None:
    call = {"op": "aten::zeros_like", "args": [{"v": 0}], "kwargs": {kind: {kind: name}}}
    data = json.dumps({"version": 1, "arguments": 1, "calls": [call]}).encode()
    with pytest.raises(IntegrityError, match="operator list refused"):
        open_op_list(data)


def test_an_operator_that_is_not_there_is_named() -> None:
    call = {"op": "aten::no_such_operator", "args": [], "kwargs": {}}
    data = json.dumps({"version": 1, "arguments": 0, "calls": [call]}).encode()
    with pytest.raises(IntegrityError, match="no_such_operator is not registered"):
        open_op_list(data)


def test_too_few_arguments_are_refused() -> None:
    run = open_op_list(encode(op_list(piece_of(lambda m, x: x + 1).graph)))
    with pytest.raises(IntegrityError, match="2 arguments was given 1"):
        run([torch.ones(1, 4)])
