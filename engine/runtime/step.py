"""ModelRunner: one step through the dispatcher, the graph wrappers and the bound calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.base import GraphBackend, StepContext
from vcc.engine.graphs.cpu import CpuGraphs, execute
from vcc.engine.runtime.adapted import Adapting, nobody
from vcc.engine.runtime.batch import StepBatch, StepLimits
from vcc.engine.runtime.by_size import chosen, with_code
from vcc.engine.runtime.descriptors import BatchDescriptor
from vcc.engine.runtime.dispatch import Dispatcher
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.inputs import StepInputs
from vcc.engine.runtime.range_step import BLOCKS, SEQS, TOKENS, RangeStep, StepCode, size_kind
from vcc.engine.runtime.turn import Turn
from vcc.engine.runtime.wrapper import CaptureGate, GraphWrapper

__all__ = ["BLOCKS", "SEQS", "TOKENS", "ModelRunner", "Parts", "size_kind"]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a runner is made of.

    Attributes:
        codes: one for each range of tokens, over the same input memory.
        limits, dispatcher, stat: of its steps.
        backend: makes PIECEWISE graphs; FULL ones are lists of calls.
        ops_as_pieces: see `RangeStep`.
        adapters: makes those that can be loaded into the code.
    """

    codes: Sequence[StepCode]
    limits: StepLimits
    dispatcher: Dispatcher
    backend: GraphBackend
    stat: GraphStat
    ops_as_pieces: bool = False
    adapters: Adapting = nobody


class ModelRunner:
    """A decoder's step on fixed memory, in any graph mode; a `StepRunner`."""

    def __init__(self, parts: Parts) -> None:
        self.limits = parts.limits
        self.gate = CaptureGate()
        self.stat = parts.stat
        self.mode = parts.dispatcher.mode
        self._parts = parts
        self._turn = Turn()
        self.adapters = parts.adapters(self._turn)
        self._inputs = StepInputs(parts.codes[0].memory, parts.limits)
        self._steps = [
            RangeStep(
                code, parts.backend, self.gate, self._seqs_of, ops_as_pieces=parts.ops_as_pieces
            )
            for code in parts.codes
        ]
        self._of_size: dict[int, RangeStep] = {}
        self._run = GraphWrapper(self._in_order, GraphMode.FULL, CpuGraphs(), self.gate)

    def capture_all(self) -> None:
        """Capture every declared graph, then close capturing."""
        for mode, descriptor in self._parts.dispatcher.capture_list():
            seqs = self._seqs_of(descriptor)
            self._inputs.clear(descriptor.tokens, seqs)
            context = self._context(mode, descriptor, descriptor.tokens, seqs)
            for wrapper in self._wrappers(mode, descriptor):
                wrapper.capture(context)
        self.gate.close()

    def graph_list(self) -> list[dict[str, object]]:
        """The graphs there are, by mode and size; a piecewise one is a graph for each piece."""
        return [
            {
                "mode": mode.value,
                "tokens": descriptor.tokens,
                "seqs": self._seqs_of(descriptor),
                "uniform": descriptor.uniform,
                "graphs": sum(
                    wrapper.graphs[descriptor].count for wrapper in self._wrappers(mode, descriptor)
                ),
            }
            for mode, descriptor in self._parts.dispatcher.capture_list()
        ]

    def step(self, batch: StepBatch) -> torch.Tensor:
        """Run one step.

        Returns:
            Logits [B, vocab] of the batch's sequences, valid until the next step.

        Raises:
            UsageError: an index in the batch is out of bounds, or another step is under way.
        """
        with self._turn.taken():
            return self._step(batch)

    def _step(self, batch: StepBatch) -> torch.Tensor:
        decision = self._parts.dispatcher.dispatch(batch.tokens, batch.uniform, loras=batch.loras)
        tokens = decision.descriptor.tokens
        seqs = self._seqs(decision.mode, decision.descriptor, batch)
        self._inputs.write(batch, tokens, seqs)
        context = self._context(decision.mode, decision.descriptor, tokens, seqs)
        self._run(context)
        step = self._at(tokens)
        self.stat.record(batch.tokens, with_code(decision, step, self._steps), batch.seqs)
        logits, memory = step.code.program.outputs[0], step.code.memory
        return memory.view(logits, step.named(context.sizes))[: batch.seqs]

    def _seqs(self, mode: GraphMode, descriptor: BatchDescriptor, batch: StepBatch) -> int:
        """Sequences of a step; segments of an eager step have those of their graph."""
        if self._parts.ops_as_pieces and mode is GraphMode.PIECEWISE:
            return self._seqs_of(descriptor)
        return descriptor.reqs or batch.seqs

    def _in_order(self, context: StepContext) -> None:
        self._at(context.descriptor.tokens)(context)

    def _at(self, tokens: int) -> RangeStep:
        """The code of a size, looked for once."""
        found = self._of_size.get(tokens)
        if found is None:
            found = self._of_size[tokens] = chosen(self._steps, tokens)
        return found

    def _context(
        self, mode: GraphMode, descriptor: BatchDescriptor, tokens: int, seqs: int
    ) -> StepContext:
        actual = {TOKENS: tokens, SEQS: seqs, BLOCKS: self.limits.num_blocks}
        sizes = self._at(tokens).sizes(actual)
        return StepContext(mode, descriptor, sizes, execute)

    def _seqs_of(self, descriptor: BatchDescriptor) -> int:
        """Sequences of a captured graph; one that is keyed by tokens alone takes the most."""
        return descriptor.reqs or min(descriptor.tokens, self.limits.max_seqs)

    def _wrappers(self, mode: GraphMode, descriptor: BatchDescriptor) -> list[GraphWrapper]:
        if mode is GraphMode.FULL:
            return [self._run]
        return self._at(descriptor.tokens).wrappers
