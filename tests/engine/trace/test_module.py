"""Trace requests for modules: every dimension fixed or a range, in the dtype that is asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.toys import module_of
from torch import Tensor, nn

from vcc.cache.errors import CompileError, ModelError
from vcc.engine.models.shapes import InputShape
from vcc.engine.trace.module import module_trace
from vcc.engine.trace.trace import Axis, trace
from vcc.engine.types import Traced


def traced(module: nn.Module, *shapes: str, dtype: torch.dtype = torch.float32) -> Traced:
    return trace(module_trace(module, tuple(map(InputShape.parse, shapes)), dtype))


def test_fixed_dimensions_and_ranges() -> None:
    request = module_trace(nn.Linear(8, 4), (InputShape.parse("input=1-16x8"),), torch.float32)
    assert request.axes == (Axis("input_0", 1, 16),)
    assert request.dynamic == {"input": {0: "input_0"}}
    assert tuple(request.arguments["input"].shape) == (4, 8)
    assert list(trace(request).ranges.values()) == [(1, 16)]


@pytest.mark.parametrize("shape", ["input=1x8", "input=4x8", "input=1-2x8", "input=100-200x8"])
def test_any_range_is_kept(shape: str) -> None:
    dims = InputShape.parse(shape).dims
    ranges = list(traced(nn.Linear(8, 4), shape).ranges.values())
    assert ranges == [(dim.low, max(dim.high, 3)) for dim in dims if dim.dynamic]


def test_the_module_is_cast_and_integers_stay() -> None:
    def model(m: Any, ids: Tensor, x: Tensor) -> Tensor:
        return m.table(ids) + x

    module = module_of(model, table=nn.Embedding(10, 8))
    graph = traced(module, "ids=1-16:int64", "x=8", dtype=torch.bfloat16)
    kinds = [n.meta["val"].dtype for n in graph.graph.graph.find_nodes(op="placeholder")]
    assert kinds == [torch.bfloat16, torch.int64, torch.bfloat16]


def test_a_computed_buffer_is_a_constant_of_the_artifact() -> None:
    module = module_of(lambda m, x: x * m.table, table=torch.arange(8.0))
    graph = traced(module, "x=1-16x8")
    assert torch.equal(graph.constants["table"], torch.arange(8.0))


def test_without_shapes_nothing_can_be_traced() -> None:
    with pytest.raises(ModelError, match="not declared") as caught:
        module_trace(nn.Linear(8, 4), (), torch.float32)
    assert "--shape" in caught.value.hint


@pytest.mark.parametrize("shape", ["x=1-16x8", "input=1-16x7", "input=8x1-16"])
def test_shapes_that_do_not_fit_the_module_are_told(shape: str) -> None:
    with pytest.raises(CompileError):
        traced(nn.Linear(8, 4), shape)
