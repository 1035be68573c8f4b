"""Static graphs on the CPU: the bound calls of a step, replayed in one loop."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.base import Launch, Runnable, StaticGraph, StepContext


@dataclass(frozen=True, slots=True)
class CpuGraph:
    """Calls whose tensors are fixed: a replay builds nothing and allocates no buffer."""

    calls: tuple[Launch, ...]
    count = 1

    def replay(self) -> None:
        """Run every call in order."""
        for call in self.calls:
            call()


class CpuGraphs:
    """Captures by collecting what a runnable emits; nothing is executed while it does."""

    def capture(self, runnable: Runnable, context: StepContext) -> StaticGraph:
        """A graph of the calls that `runnable` emits for this context."""
        calls: list[Launch] = []
        runnable(replace(context, mode=GraphMode.NONE, launch=calls.append))
        return CpuGraph(tuple(calls))


def execute(call: Launch) -> None:
    """The launch of a step that is not captured."""
    call()
