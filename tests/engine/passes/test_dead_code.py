"""Dead code: pure calls that nobody reads go, everything that writes stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.interpret import same_as_model
from support.toys import rows, traced

from vcc.engine.partition.split import split
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.dead_code import eliminate_dead_code
from vcc.engine.torch_shim.nodes import overload_name

toy = torch.ops.toy


def left(model: Callable[..., Any]) -> tuple[list[str], int]:
    """Operators after the pass, and how many nodes it removed."""
    graph = traced(model, {"x": rows(), "cache": torch.ones(4)}, {"x": {0: "T"}})
    matches = eliminate_dead_code(graph.graph, PassContext()).matches
    graph.graph.recompile()
    pieces = split(graph, ("toy::write", "toy::attend"), ())
    same_as_model(model, pieces, graph, {"x": torch.randn(5, 4), "cache": torch.randn(4)})
    names = (overload_name(node.target) for node in graph.graph.graph.nodes)
    return [name for name in names if name], matches


def test_a_pure_call_that_nobody_reads_goes_with_what_only_it_read() -> None:
    names, matches = left(lambda m, x, cache: (x.exp().log(), x.relu())[1])
    assert names == ["aten::relu.default"]
    assert matches == 2


WRITERS: dict[str, tuple[Callable[..., Any], str]] = {
    "an op of ours": (lambda m, x, cache: (toy.write(x, cache), x.relu())[1], "toy::write.default"),
    "an in-place call": (lambda m, x, cache: (cache.add_(1), x + cache)[1], "aten::add_.Tensor"),
    "a copy": (lambda m, x, cache: (cache.copy_(x[0]), x.relu())[1], "aten::copy_.default"),
    "a write through a view": (
        lambda m, x, cache: (cache[:2].zero_(), x)[1],
        "aten::zero_.default",
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_call_that_writes_stays_though_nobody_reads_its_result(name: str) -> None:
    model, operator = WRITERS[name]
    names, _ = left(model)
    assert operator in names


def test_unread_items_of_a_tuple_go() -> None:
    names, matches = left(lambda m, x, cache: torch.ops.toy.pair(x)[1] * 2)
    assert names == ["toy::pair.default", "aten::mul.Tensor"]
    assert matches == 1


def test_an_unread_random_draw_stays() -> None:
    """It moves the generator: what is drawn after it would change."""
    graph = traced(lambda m, x: (torch.rand_like(x), x.relu())[1], {"x": rows()})
    eliminate_dead_code(graph.graph, PassContext())
    assert any("rand_like" in str(node.target) for node in graph.graph.graph.nodes)


def test_inputs_stay_though_nobody_reads_them() -> None:
    """A placeholder is part of the step interface."""
    graph = traced(lambda m, x, y: x.relu(), {"x": rows(), "y": rows()})
    eliminate_dead_code(graph.graph, PassContext())
    assert [n.name for n in graph.graph.graph.nodes if n.op == "placeholder"] == ["x", "y"]


def test_a_clean_graph_is_left_as_it_is() -> None:
    _, matches = left(lambda m, x, cache: (x * 2).relu())
    assert matches == 0
