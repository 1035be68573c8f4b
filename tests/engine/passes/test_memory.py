"""Views follow what they read: a pass that exchanges tensors leaves no stranger in memory."""

from __future__ import annotations

from typing import Any

import torch
from support.toys import rows, traced
from torch import Tensor

from vcc.engine.passes.apply import PASSES, apply
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.clones import ELIMINATE_CLONES
from vcc.engine.passes.in_place import RESTORE_IN_PLACE
from vcc.engine.passes.memory import memory_of, refresh
from vcc.engine.passes.prove import prove
from vcc.engine.torch_shim.nodes import overload_name
from vcc.engine.types import Traced

toy, aten = torch.ops.toy, torch.ops.aten


def one(graph: Traced, name: str) -> Any:
    nodes = graph.graph.graph.nodes
    return next(n for n in nodes if (overload_name(n.target) or "").endswith(name))


def copied_view(m: Any, x: Tensor) -> Any:
    """A view of a copy: once the copy is gone it keeps `y` alive."""
    y = x * 2
    seen = y.clone().view(-1)
    return toy.turn(y), seen + 1


def test_a_view_of_a_copy_that_went_shares_the_memory_of_the_source() -> None:
    graph = traced(copied_view, {"x": rows()}, {"x": {0: "T"}})
    apply(graph, [ELIMINATE_CLONES])
    assert memory_of(one(graph, "view.default")) == memory_of(one(graph, "mul.Tensor"))


def test_what_looks_dead_but_is_seen_through_such_a_view_is_not_written() -> None:
    graph = traced(copied_view, {"x": rows()}, {"x": {0: "T"}})
    apply(graph, [ELIMINATE_CLONES])
    proof = prove(graph, RESTORE_IN_PLACE)
    assert proof.exact
    assert "is read again by" in proof.report.refused[0]


def test_a_split_and_its_items_follow_too() -> None:
    def model(m: Any, x: Tensor) -> Any:
        first, second = (x * 2).clone().split([2, 2], 1)
        return first + second

    graph = traced(model, {"x": rows()}, {"x": {0: "T"}})
    apply(graph, [ELIMINATE_CLONES])
    items = [n for n in graph.graph.graph.nodes if n.name.startswith("getitem")]
    assert len(items) == 2
    assert {memory_of(n) for n in items} == {memory_of(one(graph, "mul.Tensor"))}


def test_a_reshape_that_copies_keeps_memory_of_its_own() -> None:
    graph = traced(lambda m, x: (x * 2).t().reshape(-1).exp(), {"x": rows()}, {"x": {0: "T"}})
    before = memory_of(one(graph, "reshape.default"))
    refresh(graph.graph.graph)
    assert memory_of(one(graph, "reshape.default")) == before
    assert before != memory_of(one(graph, "mul.Tensor"))


def test_all_passes_in_a_row_give_equal_results() -> None:
    graph = traced(copied_view, {"x": rows()}, {"x": {0: "T"}})
    for each in PASSES:
        assert prove(graph, each, PassContext()).exact
