"""The step of one range of tokens: its calls in order, pieces behind graph wrappers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vcc.cache.errors import IntegrityError
from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.base import GraphBackend, Runnable, StepContext
from vcc.engine.graphs.program import Call, Program, Symbol
from vcc.engine.runtime.binding import Binder
from vcc.engine.runtime.descriptors import BatchDescriptor
from vcc.engine.runtime.memory import StepMemory
from vcc.engine.runtime.wrapper import CaptureGate, GraphWrapper

TOKENS, SEQS, BLOCKS = "tokens", "seqs", "blocks"

CARRIERS: Mapping[tuple[str, int], str] = {
    **{(name, 0): TOKENS for name in ("input_ids", "positions", "slot_mapping", "lora_slot")},
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
class StepCode:
    """What runs steps of `low` to `high` tokens."""

    low: int
    high: int
    program: Program
    memory: StepMemory
    binder: Binder


class RangeStep:
    """Emits the calls of one range's program.

    Args:
        code: what is called.
        backend: makes the graphs of pieces.
        gate: of the whole model.
        seqs_of: sequences of a captured graph.
        ops_as_pieces: PIECEWISE graphs wrap the calls of operators too: those of an eager step,
            which is one operator of its own.
    """

    def __init__(
        self,
        code: StepCode,
        backend: GraphBackend,
        gate: CaptureGate,
        seqs_of: Callable[[BatchDescriptor], int],
        *,
        ops_as_pieces: bool = False,
    ) -> None:
        self.low, self.high, self.code = code.low, code.high, code
        self._kinds = tuple(size_kind(symbol) for symbol in code.program.symbols)
        self._names = tuple(symbol.name for symbol in code.program.symbols)
        self._backend, self._gate, self._seqs_of = backend, gate, seqs_of
        self._as_pieces = ops_as_pieces
        self._segments = [self._segment(i, call) for i, call in enumerate(code.program.calls)]
        self.wrappers = [s.wrapper for s in self._segments if isinstance(s, _PieceSegment)]

    def __call__(self, context: StepContext) -> None:
        """Emit every call, in order."""
        for segment in self._segments:
            segment(context)

    def sizes(self, actual: Mapping[str, int]) -> tuple[int, ...]:
        """The sizes of the program's symbols, in its order.

        Args:
            actual: size by kind.
        """
        return tuple(actual[kind] for kind in self._kinds)

    def named(self, sizes: tuple[int, ...]) -> dict[str, int]:
        """Sizes by the program's names."""
        return dict(zip(self._names, sizes, strict=True))

    def _segment(self, index: int, call: Call) -> Callable[[StepContext], None]:
        binder = self.code.binder

        def emit(context: StepContext) -> None:
            context.launch(binder.calls(context.sizes)[index])

        if call.kind == "op" and not self._as_pieces:
            return emit
        wrapper = GraphWrapper(emit, GraphMode.PIECEWISE, self._backend, self._gate)
        return _PieceSegment(wrapper, emit, self._seqs_index(call), self._seqs_of)

    def _seqs_index(self, call: Call) -> int | None:
        """Where the number of sequences stands among the sizes, if the piece depends on it."""
        values = self.code.program.by_name()
        used = {
            size
            for name in call.args
            if isinstance(name, str)
            for size in values[name].shape
            if isinstance(size, str)
        }
        symbols = self.code.program.symbols
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
