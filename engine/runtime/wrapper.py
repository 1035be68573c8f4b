"""GraphWrapper: replays its runnable as a static graph when the step's mode says so."""

from __future__ import annotations

from dataclasses import dataclass, field

from vcc.cache.errors import GraphError
from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.base import GraphBackend, Runnable, StaticGraph, StepContext
from vcc.engine.runtime.descriptors import BatchDescriptor


@dataclass(slots=True)
class CaptureGate:
    """Whether graphs may still be captured, and how many were, over all wrappers of a model."""

    open: bool = True
    captures: int = 0
    replays: int = 0

    def close(self) -> None:
        """From now on a missing graph is an error: serving never captures."""
        self.open = False


@dataclass(frozen=True, slots=True)
class GraphWrapper:
    """One runnable and its graphs by descriptor.

    A step in another mode, or without a context, runs the runnable directly and captures nothing.
    """

    runnable: Runnable
    mode: GraphMode
    backend: GraphBackend
    gate: CaptureGate
    graphs: dict[BatchDescriptor, StaticGraph] = field(default_factory=dict)

    def __call__(self, context: StepContext) -> None:
        """Replay the graph of the step's descriptor, or run directly."""
        if context.mode is not self.mode:
            self.runnable(context)
            return
        graph = self.graphs.get(context.descriptor)
        if graph is None:
            graph = self.capture(context)
        graph.replay()
        self.gate.replays += graph.count

    def capture(self, context: StepContext) -> StaticGraph:
        """Capture the graph of a descriptor; the runnable is called once, in recording.

        Raises:
            GraphError: capturing was closed.
        """
        if not self.gate.open:
            raise GraphError(
                f"no {self.mode.value} graph for {context.descriptor.tokens} tokens",
                "capturing was closed when the model was ready",
                "declare the size in capture_sizes",
            )
        graph = self.backend.capture(self.runnable, context)
        self.graphs[context.descriptor] = graph
        self.gate.captures += graph.count
        return graph
