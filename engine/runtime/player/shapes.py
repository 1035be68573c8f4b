"""From the dispatcher's decisions to steps of the player, and which graphs it builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from vcc.engine.config.modes import GraphMode
from vcc.engine.runtime.descriptors import BatchDescriptor, Dispatch
from vcc.engine.runtime.dispatch import Dispatcher
from vcc.engine.runtime.player.handle import Mode, Parts, Shape

MODES: Mapping[GraphMode, Mode] = {
    GraphMode.NONE: Mode.PLAIN,
    GraphMode.PIECEWISE: Mode.PIECEWISE,
    GraphMode.FULL: Mode.FULL,
}


@dataclass(frozen=True, slots=True)
class StepShapes:
    """How steps of a booted model run.

    Attributes:
        dispatcher: decides mode and padding.
        max_seqs: most sequences of a step.
        samples: graphs end with the sampling tail; steps that want logits alone use them too.
    """

    dispatcher: Dispatcher
    max_seqs: int
    samples: bool

    def of(
        self, decision: Dispatch, tokens: int, seqs: int, *, uniform: bool, loras: int = 0
    ) -> Shape:
        """The padded step of a decision.

        Args:
            decision: of the dispatcher.
            tokens, seqs: of the batch, unpadded.
            uniform: every sequence has one token.
            loras: number of active adapters.
        """
        plain = self._of(decision, tokens, seqs, uniform=uniform)
        if not max(loras, decision.descriptor.loras):
            return plain
        return replace(plain, parts=plain.parts | Parts.ADAPTED)

    def _of(self, decision: Dispatch, tokens: int, seqs: int, *, uniform: bool) -> Shape:
        mode, key = MODES[decision.mode], decision.descriptor
        if mode is Mode.PLAIN:
            return Shape(mode, tokens, seqs, Parts.UNIFORM if uniform else Parts.NONE)
        if mode is Mode.FULL:
            held = key.reqs or seqs
            # Pure FULL has one descriptor for both kinds of step, and a graph for each of them.
            alone = key.uniform or (uniform and held == key.tokens)
            return Shape(mode, key.tokens, held, Parts.UNIFORM if alone else Parts.NONE)
        # A uniform step has as many rows as sequences, also with padding.
        if uniform and key.tokens <= self.max_seqs:
            return Shape(mode, key.tokens, key.tokens, Parts.UNIFORM)
        return Shape(mode, key.tokens, seqs, Parts.NONE)

    def graphs(self, expected: int) -> tuple[tuple[Shape, ...], int]:
        """What to build, and how many of it first.

        A FULL descriptor of as many sequences as tokens that serves mixed steps as well has two:
        decode steps take other kernels.

        Args:
            expected: sequences that will decode together, as far as known; 0: not known.
        """
        tail = Parts.SAMPLE if self.samples else Parts.NONE
        captures = self.dispatcher.capture_list()
        # One graph has no adapters, the other any number: its kernels look at the rows' slots.
        every = (shape for mode, key in captures for shape in self._graphs(mode, key, tail))
        wanted = list(dict.fromkeys(every))
        hot = self._hot(wanted, max(1, expected))
        rest = [shape for shape in wanted if shape not in hot]
        return (*hot, *sorted(rest, key=_when_used)), len(hot)

    def count(self, pieces: Callable[[int], int]) -> int:
        """Graphs that are declared; `pieces` of a step of so many tokens."""
        full, cut = (
            {replace(key, loras=min(key.loras, 1)) for key in self.dispatcher.keys(mode)}
            for mode in (GraphMode.FULL, GraphMode.PIECEWISE)
        )
        return len(full) + sum(pieces(key.tokens) for key in cut)

    def _graphs(self, mode: GraphMode, key: BatchDescriptor, tail: Parts) -> tuple[Shape, ...]:
        parts = Parts.UNIFORM if key.uniform else Parts.NONE
        parts |= Parts.ADAPTED if key.loras else Parts.NONE
        if mode is GraphMode.PIECEWISE:
            return (Shape(Mode.PIECEWISE, key.tokens, min(key.tokens, self.max_seqs), parts),)
        made = Shape(Mode.FULL, key.tokens, key.reqs or 1, parts | tail)
        if key.uniform or key.reqs != key.tokens:
            return (made,)
        return replace(made, parts=made.parts | Parts.UNIFORM), made

    def _hot(self, wanted: list[Shape], expected: int) -> list[Shape]:
        full = [shape for shape in wanted if shape.mode is Mode.FULL] or wanted
        fitting = [shape for shape in full if shape.seqs >= expected] or full
        return sorted(fitting, key=_when_used)[:1]


def _when_used(shape: Shape) -> tuple[bool, int, bool]:
    """Decode steps first, small ones first: a large one pays for its padding when many decode."""
    return Parts.UNIFORM not in shape.parts, shape.tokens, Parts.ADAPTED in shape.parts
