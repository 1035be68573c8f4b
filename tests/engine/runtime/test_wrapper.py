"""Graph wrappers: rows W1, W2, W4 and W5."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support.steps import layered, runner_of

from vcc.cache.errors import GraphError
from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.base import Launch, StepContext
from vcc.engine.graphs.cpu import CpuGraphs, execute
from vcc.engine.runtime.descriptors import BatchDescriptor
from vcc.engine.runtime.wrapper import CaptureGate, GraphWrapper


@dataclass
class Recorder:
    """A runnable that counts how often it is called and how often what it emits is run."""

    called: int = 0
    ran: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, context: StepContext) -> None:
        self.called += 1
        context.launch(lambda: self.ran.append(context.sizes))


def context(mode: GraphMode, tokens: int = 4) -> StepContext:
    return StepContext(mode, BatchDescriptor(tokens), (tokens,), execute)


def wrapped(mode: GraphMode = GraphMode.FULL) -> tuple[GraphWrapper, Recorder]:
    recorder = Recorder()
    return GraphWrapper(recorder, mode, CpuGraphs(), CaptureGate()), recorder


def test_w1_the_first_call_captures_and_the_second_replays() -> None:
    """W1: the runnable is called once; every call runs its launches once."""
    wrapper, recorder = wrapped()
    wrapper(context(GraphMode.FULL))
    assert (recorder.called, recorder.ran, wrapper.gate.captures) == (1, [(4,)], 1)
    wrapper(context(GraphMode.FULL))
    assert (recorder.called, recorder.ran, wrapper.gate.captures) == (1, [(4,), (4,)], 1)
    assert wrapper.gate.replays == 2


def test_w1_each_descriptor_has_its_graph() -> None:
    wrapper, recorder = wrapped()
    for tokens in (4, 8, 4, 8):
        wrapper(context(GraphMode.FULL, tokens))
    assert recorder.called == 2
    assert recorder.ran == [(4,), (8,), (4,), (8,)]
    assert set(wrapper.graphs) == {BatchDescriptor(4), BatchDescriptor(8)}


@pytest.mark.parametrize("mode", [GraphMode.NONE, GraphMode.PIECEWISE])
def test_w2_in_another_mode_the_runnable_is_called_each_time(mode: GraphMode) -> None:
    """W2: no capture, whatever was captured before."""
    wrapper, recorder = wrapped()
    wrapper(context(mode))
    wrapper(context(mode))
    assert (recorder.called, len(recorder.ran)) == (2, 2)
    assert (wrapper.gate.captures, wrapper.gate.replays) == (0, 0)
    assert wrapper.graphs == {}


def test_w4_after_closing_a_missing_graph_is_an_error() -> None:
    """W4: RuntimeError, no graph is made; what was captured still replays."""
    wrapper, recorder = wrapped()
    wrapper(context(GraphMode.FULL, 4))
    wrapper.gate.close()
    with pytest.raises(RuntimeError, match="no full graph for 8 tokens") as caught:
        wrapper(context(GraphMode.FULL, 8))
    assert isinstance(caught.value, GraphError)
    assert "closed" in caught.value.why
    assert set(wrapper.graphs) == {BatchDescriptor(4)}
    wrapper(context(GraphMode.FULL, 4))
    assert recorder.called == 1


def test_nothing_is_executed_while_a_graph_is_captured() -> None:
    wrapper, recorder = wrapped()
    wrapper.capture(context(GraphMode.FULL))
    assert (recorder.called, recorder.ran) == (1, [])


def test_a_capture_inside_a_capture_joins_it() -> None:
    """A FULL graph is made of pieces that have PIECEWISE wrappers of their own."""
    gate, recorder = CaptureGate(), Recorder()
    inner = GraphWrapper(recorder, GraphMode.PIECEWISE, CpuGraphs(), gate)

    def step(now: StepContext) -> None:
        inner(now)
        inner(now)

    outer = GraphWrapper(step, GraphMode.FULL, CpuGraphs(), gate)
    outer(context(GraphMode.FULL))
    assert (gate.captures, inner.graphs, recorder.ran) == (1, {}, [(4,), (4,)])
    outer(context(GraphMode.FULL))
    assert recorder.called == 2


def test_an_error_in_a_capture_leaves_no_graph() -> None:
    gate = CaptureGate()

    def broken(now: StepContext) -> None:
        raise ZeroDivisionError

    wrapper = GraphWrapper(broken, GraphMode.FULL, CpuGraphs(), gate)
    with pytest.raises(ZeroDivisionError):
        wrapper(context(GraphMode.FULL))
    assert (wrapper.graphs, gate.captures) == ({}, 0)


def test_a_graph_is_a_list_of_calls() -> None:
    ran: list[str] = []
    launches: list[Launch] = [lambda: ran.append("a"), lambda: ran.append("b")]

    def emit(now: StepContext) -> None:
        for launch in launches:
            now.launch(launch)

    graph = CpuGraphs().capture(emit, context(GraphMode.FULL))
    launches.clear()
    graph.replay()
    graph.replay()
    assert ran == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("mode", "graphs"),
    [
        (GraphMode.NONE, 0),
        (GraphMode.FULL, 1),
        (GraphMode.FULL_DECODE_ONLY, 1),
        (GraphMode.PIECEWISE, 13),
        (GraphMode.FULL_AND_PIECEWISE, 14),
    ],
)
@pytest.mark.parametrize("sizes", [(4,), (1, 2, 4)])
def test_w5_graphs_of_a_12_layer_decoder(
    mode: GraphMode, graphs: int, sizes: tuple[int, ...]
) -> None:
    """W5: 13 pieces around 12 layers' attention, for each capture size."""
    names = ("head", "layer", "tail")
    ops = {"kv": lambda *_: None, "attention": lambda *_: None}
    runner = runner_of(layered(12), dict.fromkeys(names, len), ops, mode, sizes)
    assert runner.gate.captures == graphs * len(sizes)
    assert not runner.gate.open
