"""Rows W6 and W7: graphs of eager code between breaks."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from support import toys  # noqa: F401 - defines the operators
from torch import Tensor

from vcc.cache.errors import GraphError
from vcc.engine.graphs.segments import breaks_graph, capture_segments

toy = torch.ops.toy


@breaks_graph
def eagerly(x: Tensor) -> Tensor:
    """Python decides by what the tensor holds, which no graph could record."""
    return x + 100 if x.sum() > 0 else x - 100


def step(x: Tensor) -> Tensor:
    return eagerly(x * 2).relu() + x


def test_w6_graph_break_graph_gives_three_segments_and_current_values() -> None:
    """W6: graph op, eager op, graph op: G-E-G; replay with changed input gives the new value."""
    x = torch.tensor([1.0, 2.0])
    graph = capture_segments(lambda: step(x))
    assert (graph.form, graph.count) == ("GEG", 2)
    for values in ([3.0, 4.0], [-5.0, -6.0], [0.5, 0.25]):
        x.copy_(torch.tensor(values))
        assert torch.equal(graph.replay(), step(x))


def test_operators_break_by_name() -> None:
    x, cache = torch.randn(3, 4), torch.zeros(4)

    def model() -> Tensor:
        out = torch.empty_like(x)
        toy.attend(x * 2, x + 1, out)
        toy.write(out, cache)
        return out.exp() * cache

    graph = capture_segments(model, ("toy::attend", "toy::write.default"))
    assert graph.form == "GEEG"
    x.copy_(torch.randn(3, 4))
    before = cache.clone()
    found = graph.replay()
    cache.copy_(before)
    torch.testing.assert_close(found, model())


def test_views_writes_lists_and_tuples_are_followed() -> None:
    x = torch.randn(4, 6)

    def model() -> tuple[Tensor, list[Tensor]]:
        left, right = x.split(3, dim=1)
        left = left.clone()
        left.add_(right)
        left[0].mul_(2)
        both = torch.cat([left, right.t().reshape(4, 3)], dim=1)
        return both, [left, x.sum(0)]

    graph = capture_segments(model)
    assert graph.form == "G"
    x.copy_(torch.randn(4, 6))
    torch.testing.assert_close(graph.replay(), model())


def test_a_replay_runs_no_python_of_the_model() -> None:
    ran: list[int] = []
    x = torch.ones(2)

    def model() -> Tensor:
        ran.append(1)
        return (x + 1) * 2

    graph = capture_segments(model)
    graph.replay()
    assert len(ran) == 1


def test_results_of_a_replay_live_until_their_last_reader() -> None:
    """Nothing of a capture or of a replay is kept, whatever its size."""
    made: list[weakref.ref[Tensor]] = []

    @breaks_graph
    def seen(y: Tensor) -> Tensor:
        made.append(weakref.ref(y))
        return y * 2

    x = torch.ones(2)
    graph = capture_segments(lambda: seen(seen(x + 1) - 3).exp())
    for _ in range(3):
        result = graph.replay()
    gc.collect()
    assert len(made) == 8
    assert [one() for one in made] == [None] * 8
    assert torch.equal(result, (((x + 1) * 2 - 3) * 2).exp())


def test_w7_a_nested_capture_is_an_error() -> None:
    """W7: and the outer one goes no further."""
    x = torch.ones(2)

    def nested() -> Tensor:
        capture_segments(lambda: x + 1)
        return x

    with pytest.raises(GraphError, match="inside another one"):
        capture_segments(nested)
    assert capture_segments(lambda: x + 1).form == "G"


@pytest.mark.parametrize("where", ["graph", "break"])
def test_w7_an_exception_inside_clears_the_state(where: str) -> None:
    """W7: the next capture works, and nothing of the failed one is in it."""
    x = torch.ones(2)

    def fails(x: Tensor) -> Tensor:
        raise ValueError("of the model's own")

    def model() -> Tensor:
        return (fails if where == "graph" else breaks_graph(fails))(x * 2)

    with pytest.raises(ValueError, match="of the model's own"):
        capture_segments(model)
    graph = capture_segments(lambda: step(x))
    assert graph.form == "GEG"
    assert torch.equal(graph.replay(), step(x))


def test_w7_other_threads_are_unaffected() -> None:
    """W7: their calls are neither recorded nor changed, and they may capture too."""
    x, found, inside = torch.ones(2), {}, threading.Event()
    done = threading.Event()

    def other() -> None:
        inside.wait(10)
        found["eager"] = eagerly(x * 3)
        found["graph"] = capture_segments(lambda: x - 1).form
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    def model() -> Tensor:
        y = x * 2
        inside.set()
        assert done.wait(10)
        return y + 1

    graph = capture_segments(model)
    thread.join()
    assert (graph.form, len(graph.segments[0].graph.calls)) == ("G", 2)
    assert torch.equal(found["eager"], x * 3 + 100)
    assert found["graph"] == "G"


@pytest.mark.parametrize("reads", [lambda x: x[0].item(), lambda x: x.nonzero()], ids=["item", "n"])
def test_data_that_python_would_see_is_refused_by_name(reads: Any) -> None:
    x = torch.ones(2)
    with pytest.raises(GraphError, match=r"aten::(_local_scalar_dense|nonzero) cannot be part"):
        capture_segments(lambda: reads(x * 2))
    breaks = breaks_graph(lambda x: reads(x) * 1.0)
    assert capture_segments(lambda: breaks(x * 2)).form == "GE"


def test_a_function_that_breaks_is_itself_outside_of_captures() -> None:
    assert torch.equal(eagerly(torch.ones(2)), torch.full((2,), 101.0))
    assert eagerly.__name__ == "eagerly"


def test_a_higher_order_operator_is_refused_by_name() -> None:
    def branching(x: Tensor) -> Tensor:
        higher = torch.ops.higher_order.cond
        return higher(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    with pytest.raises(GraphError, match="cond cannot be part of a graph"):
        capture_segments(lambda: branching(torch.ones(2)))
