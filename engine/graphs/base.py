"""The StaticGraph protocol: what every platform's graphs are, and how they come about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from vcc.engine.config.modes import GraphMode
from vcc.engine.runtime.descriptors import BatchDescriptor

Launch = Callable[[], object]
"""One call bound to its memory: a piece or a splitting op with its arguments."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """How the current step runs.

    Attributes:
        mode: the plain mode that the dispatcher chose.
        descriptor: the padded shape, the key of a graph.
        sizes: the size of every symbol of the program, in program order.
        launch: executes a call, or records it while a graph is captured.
    """

    mode: GraphMode
    descriptor: BatchDescriptor
    sizes: tuple[int, ...]
    launch: Callable[[Launch], None]


Runnable = Callable[[StepContext], None]
"""A step or a part of one: emits its calls through `context.launch`, in order."""


class StaticGraph(Protocol):
    """A captured graph: fixed memory, fixed sizes.

    Attributes:
        count: graphs that it consists of: one, or a graph for each segment.
    """

    @property
    def count(self) -> int:
        """See above."""

    def replay(self) -> None:
        """Run the captured calls on what their input buffers hold now."""


class GraphBackend(Protocol):
    """Captures graphs on one platform."""

    def capture(self, runnable: Runnable, context: StepContext) -> StaticGraph:
        """Run `runnable` once in recording and return what it emitted as a graph."""


Sizes = Mapping[str, int]
"""Size by symbol name."""
