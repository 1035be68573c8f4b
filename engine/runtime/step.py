"""ModelRunner: one step through the dispatcher, the graph wrappers and the bound calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from vcc.cache.errors import IntegrityError
from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.base import GraphBackend, Runnable, StepContext
from vcc.engine.graphs.cpu import execute
from vcc.engine.graphs.program import Call, Program, Symbol
from vcc.engine.runtime.batch import StepBatch, StepLimits
from vcc.engine.runtime.binding import Binder
from vcc.engine.runtime.descriptors import BatchDescriptor
from vcc.engine.runtime.dispatch import Dispatcher
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.inputs import StepInputs
from vcc.engine.runtime.memory import StepMemory
from vcc.engine.runtime.turn import Turn
from vcc.engine.runtime.wrapper import CaptureGate, GraphWrapper

TOKENS, SEQS, BLOCKS = "tokens", "seqs", "blocks"

CARRIERS: Mapping[tuple[str, int], str] = {
    **{(name, 0): TOKENS for name in ("input_ids", "positions", "slot_mapping")},
    **{(name, 0): SEQS for name in ("block_table", "seq_lens", "logits_index")},
}
"""Which size an input's dimension is; dimension 1 of a KV cache is the number of blocks."""


def size_kind(symbol: Symbol) -> str:
    """Which of the step's sizes a symbol of the program stands for.

    Raises:
        IntegrityError: it is none of them.
    """
    if symbol.source.startswith("kv_cache") and symbol.dim == 1:
        return BLOCKS
    kind = CARRIERS.get((symbol.source, symbol.dim))
    if kind is None:
        raise IntegrityError(
            f"size {symbol.name} of the step program is not one of the step interface",
            f"it is dimension {symbol.dim} of {symbol.source}",
        )
    return kind


@dataclass(frozen=True, slots=True)
class Parts:
    """What a runner is made of."""

    program: Program
    memory: StepMemory
    binder: Binder
    limits: StepLimits
    dispatcher: Dispatcher
    backend: GraphBackend
    stat: GraphStat


class ModelRunner:
    """A decoder's step on fixed memory, in any graph mode; a `StepRunner`."""

    def __init__(self, parts: Parts) -> None:
        self.limits = parts.limits
        self.gate = CaptureGate()
        self.stat = parts.stat
        self.mode = parts.dispatcher.mode
        self._parts = parts
        self._turn = Turn()
        self._inputs = StepInputs(parts.memory, parts.limits)
        self._kinds = tuple(size_kind(symbol) for symbol in parts.program.symbols)
        self._run = self._assemble()
        self._logits = parts.program.outputs[0]

    def capture_all(self) -> None:
        """Capture every declared graph, then close capturing."""
        for mode, descriptor in self._parts.dispatcher.capture_list():
            seqs = self._seqs_of(descriptor)
            context = self._context(mode, descriptor, descriptor.tokens, seqs)
            for wrapper in self._wrappers(mode):
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
                "graphs": len(self._wrappers(mode)),
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
        decision = self._parts.dispatcher.dispatch(batch.tokens, batch.uniform)
        tokens = decision.descriptor.tokens
        seqs = decision.descriptor.reqs or batch.seqs
        self._inputs.write(batch, tokens, seqs)
        context = self._context(decision.mode, decision.descriptor, tokens, seqs)
        self._run(context)
        self.stat.record(batch.tokens, decision, batch.seqs)
        sizes = dict(zip((s.name for s in self._parts.program.symbols), context.sizes, strict=True))
        return self._parts.memory.view(self._logits, sizes)[: batch.seqs]

    def _context(
        self, mode: GraphMode, descriptor: BatchDescriptor, tokens: int, seqs: int
    ) -> StepContext:
        actual = {TOKENS: tokens, SEQS: seqs, BLOCKS: self.limits.num_blocks}
        return StepContext(mode, descriptor, tuple(actual[k] for k in self._kinds), execute)

    def _seqs_of(self, descriptor: BatchDescriptor) -> int:
        """Sequences of a captured graph; one that is keyed by tokens alone takes the most."""
        return descriptor.reqs or min(descriptor.tokens, self.limits.max_seqs)

    def _assemble(self) -> Runnable:
        segments = [
            self._segment(index, call) for index, call in enumerate(self._parts.program.calls)
        ]
        self._pieces = [s for s in segments if isinstance(s, _PieceSegment)]

        def in_order(context: StepContext) -> None:
            for segment in segments:
                segment(context)

        self._full = GraphWrapper(in_order, GraphMode.FULL, self._parts.backend, self.gate)
        return self._full

    def _wrappers(self, mode: GraphMode) -> list[GraphWrapper]:
        return [self._full] if mode is GraphMode.FULL else [p.wrapper for p in self._pieces]

    def _segment(self, index: int, call: Call) -> Callable[[StepContext], None]:
        binder = self._parts.binder

        def emit(context: StepContext) -> None:
            context.launch(binder.calls(context.sizes)[index])

        if call.kind == "op":
            return emit
        wrapper = GraphWrapper(emit, GraphMode.PIECEWISE, self._parts.backend, self.gate)
        return _PieceSegment(wrapper, emit, self._seqs_index(call), self._seqs_of)

    def _seqs_index(self, call: Call) -> int | None:
        """Where the number of sequences stands among the sizes, if the piece depends on it."""
        values = self._parts.program.by_name()
        used = {
            size
            for name in call.args
            if isinstance(name, str)
            for size in values[name].shape
            if isinstance(size, str)
        }
        symbols = self._parts.program.symbols
        found = (i for i, s in enumerate(symbols) if s.name in used and self._kinds[i] == SEQS)
        return next(found, None)


@dataclass(frozen=True, slots=True)
class _PieceSegment:
    """A piece in a step: PIECEWISE graphs are keyed by tokens alone.

    A piece that depends on the number of sequences too has its graph for the largest number that
    the tokens allow; a step of fewer runs it directly rather than computing unused logits.
    """

    wrapper: GraphWrapper
    direct: Runnable
    seqs_index: int | None
    seqs_of: Callable[[BatchDescriptor], int]

    def __call__(self, context: StepContext) -> None:
        other = self.seqs_index is not None and (
            context.sizes[self.seqs_index] != self.seqs_of(context.descriptor)
        )
        (self.direct if other else self.wrapper)(context)
