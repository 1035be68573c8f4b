"""Graphs of eager code: what runs between breaks is recorded as segments, breaks stay eager.

A segment on the CPU is the operator calls that ran, without the Python around them. A break is an
operator by name, such as attention, or a function wrapped by `breaks_graph`. Replaying makes the
same calls on what the tensors outside hold now.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar

import torch

from vcc.cache.errors import GraphError
from vcc.engine.config.modes import GraphMode
from vcc.engine.config.op_names import named_in
from vcc.engine.graphs.base import Launch, Runnable, StepContext
from vcc.engine.graphs.cpu import CpuGraph, execute
from vcc.engine.graphs.recorded_values import Fill, Values
from vcc.engine.torch_shim.dispatch_mode import heard, is_higher_order, unheard

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a step: `graph` replays calls; else the one call of a break."""

    graph: CpuGraph
    breaks: bool


@dataclass(frozen=True, slots=True)
class SegmentedGraph:
    """A recorded function: a `StaticGraph` of as many graphs as it has segments between breaks."""

    segments: tuple[Segment, ...]
    result: Callable[[], Any]

    @property
    def count(self) -> int:
        """Graphs: breaks are none."""
        return sum(not segment.breaks for segment in self.segments)

    @property
    def form(self) -> str:
        """A letter a segment: G for a graph, E for a break that runs eagerly."""
        return "".join("E" if segment.breaks else "G" for segment in self.segments)

    def replay(self) -> Any:
        """Run all segments in order; returns what the function returned, computed anew."""
        with torch.no_grad():
            for segment in self.segments:
                segment.graph.replay()
        return self.result()


def capture_segments(function: Callable[[], Any], breaking: Sequence[str] = ()) -> SegmentedGraph:
    """Run a function once and record it.

    Tensors that were there before are read again by every replay, at the same addresses; sizes,
    numbers and branches are those of this run.

    Args:
        function: eager code; it may write to tensors from outside.
        breaking: operators that stay eager: `ns::op` for all overloads, or `ns::op.overload`.

    Raises:
        GraphError: this thread is recording already, or an operator outside of a break hands data
            to Python, which a replay would not see.
    """
    if _RECORDER.get() is not None:
        raise GraphError(
            "a capture begins inside another one",
            "segments of two graphs would be one",
            "capture one after the other",
        )
    recorder = _Recorder(frozenset(breaking))
    token = _RECORDER.set(recorder)
    try:
        with torch.no_grad(), heard(recorder.hear):
            returned = function()
    finally:
        _RECORDER.reset(token)
    return recorder.finish(returned)


def breaks_graph(function: Callable[P, R]) -> Callable[P, R]:
    """A function that captures leave eager: each replay calls it again, with current values."""

    @functools.wraps(function)
    def breaking(*args: P.args, **kwargs: P.kwargs) -> R:
        recorder = _RECORDER.get()
        if recorder is None or recorder.busy:
            return function(*args, **kwargs)
        result: R = recorder.call_eagerly(function, args, kwargs)
        return result

    return breaking


class EagerSegments:
    """Makes PIECEWISE graphs of an eager step; a `GraphBackend`."""

    def __init__(self, breaking: Sequence[str]) -> None:
        self._breaking = tuple(breaking)

    def capture(self, runnable: Runnable, context: StepContext) -> SegmentedGraph:
        """Run the step on what its inputs hold, and record it."""
        direct = replace(context, mode=GraphMode.NONE, launch=execute)
        return capture_segments(lambda: runnable(direct), self._breaking)


@dataclass(slots=True)
class _Recorder:
    """The segments so far; `busy` while a break runs."""

    breaking: frozenset[str]
    values: Values = field(default_factory=Values)
    segments: list[Segment] = field(default_factory=list)
    calls: list[Launch] = field(default_factory=list)
    busy: bool = False

    def hear(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if named_in(op.name(), self.breaking):
            return self.call_eagerly(op, args, kwargs)
        _check_recordable(op)
        launch, result = self._called(op, args, kwargs)
        self.calls.append(launch)
        return result

    def call_eagerly(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self._close()
        self.busy = True
        try:
            with unheard():
                launch, result = self._called(function, args, kwargs)
        finally:
            self.busy = False
        self.segments.append(Segment(CpuGraph((launch,)), breaks=True))
        return result

    def finish(self, returned: Any) -> SegmentedGraph:
        self._close()
        fill, values = self.values.reader(returned), self.values
        values.seal()
        return SegmentedGraph(tuple(self.segments), lambda: values.read(fill))

    def _close(self) -> None:
        if self.calls:
            self.segments.append(Segment(CpuGraph(tuple(self.calls)), breaks=False))
            self.calls = []

    def _called(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Launch, Any]:
        readers = [self.values.reader(arg) for arg in args]
        named = {name: self.values.reader(value) for name, value in kwargs.items()}
        result = function(*args, **kwargs)
        return _launch(self.values, function, readers, named, self.values.keep(result)), result


def _launch(
    values: Values,
    function: Any,
    args: Sequence[Fill],
    kwargs: Mapping[str, Fill],
    number: int,
) -> Launch:
    def launch() -> None:
        given = [values.read(fill) for fill in args]
        named = {name: values.read(fill) for name, fill in kwargs.items()}
        values.put(number, function(*given, **named))

    return launch


def _check_recordable(op: Any) -> None:
    if is_higher_order(op):
        raise GraphError(
            f"{op.name()} cannot be part of a graph",
            "what it runs may depend on data, and a replay would not ask again",
            "put it into a function with @breaks_graph, or use graph mode full or none",
        )
    tags = op.tags
    if torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags:
        raise GraphError(
            f"{op.name()} cannot be part of a graph",
            "its result tells Python what is in a tensor, and a replay runs no Python",
            "put it into a function with @breaks_graph, or use graph mode full or none",
        )


_RECORDER: ContextVar[_Recorder | None] = ContextVar("vcc_recorder", default=None)
"""The capture under way: of this thread alone, as threads begin with a context of their own."""
