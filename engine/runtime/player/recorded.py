"""Recorded artifacts on the player: a node table for each declared step, over one memory.

Where a planned artifact has one table for all sizes, a recorded one has a graph a descriptor and
nothing else: a step is padded to one of them, and a larger one is refused. The scheduler keeps
steps within the largest, so prompts of any length are read in chunks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import GraphError, IntegrityError
from vcc.engine.runtime.batch import StepBatch, StepLimits
from vcc.engine.runtime.dispatch import Dispatcher
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.inputs import StepInputs
from vcc.engine.runtime.player.handle import Inputs, Mode, Parts, PlayerHandle, Read, Shape
from vcc.engine.runtime.player.layout import Layout
from vcc.engine.runtime.player.step_check import check_step
from vcc.engine.runtime.player.tables import SlotArrays
from vcc.engine.runtime.turn import Turn
from vcc.engine.runtime.wrapper import CaptureGate

PREFIX = "table/recorded."
SLOTS, RING, THREADS = 2, 1, 1


@dataclass(frozen=True, slots=True, order=True)
class Recorded:
    """A recorded step: rows, sequences, one row a sequence."""

    tokens: int
    seqs: int
    uniform: bool

    @classmethod
    def parse(cls, name: str) -> Recorded:
        """From the name of a blob.

        Raises:
            IntegrityError: it names no step.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise IntegrityError(f"blob {name[:60]} names no recorded step")
        tokens, seqs, uniform = map(int, match.groups())
        if seqs > tokens or (uniform and seqs != tokens):
            raise IntegrityError(
                f"blob {name[:60]} names no recorded step", "each sequence has a row of it or more"
            )
        return cls(tokens, seqs, bool(uniform))

    @property
    def shape(self) -> Shape:
        """As the player sees it."""
        parts = Parts.UNIFORM if self.uniform else Parts.NONE
        return Shape(Mode.FULL, self.tokens, self.seqs, parts)


_NAME = re.compile(re.escape(PREFIX) + r"([1-9][0-9]{0,8})\.([1-9][0-9]{0,8})\.([01])")
"""One spelling for each step, so that two blobs cannot mean the same."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A recorded step with its player, where its tensors lie, and writers of its input slots.

    `mode` is how it is launched: whole, or a graph for each part between breaks.
    """

    recorded: Recorded
    handle: PlayerHandle
    layout: Layout
    inputs: tuple[StepInputs, ...]
    mode: Mode = Mode.FULL

    @property
    def shape(self) -> Shape:
        """As the player runs it."""
        return replace(self.recorded.shape, mode=self.mode)

    @property
    def graphs(self) -> int:
        """Graphs that it consists of; breaks are none."""
        return self.layout.segments[0] if self.mode is Mode.PIECEWISE else 1

    @property
    def dtype(self) -> str:
        """Element type of the logits."""
        return self.layout.tensor("logits").dtype


def largest_first(tables: Mapping[Recorded, bytes]) -> list[Recorded]:
    """The order of making players: the first one's memory serves all."""
    return sorted(tables, reverse=True)


def place(
    first: PlayerHandle,
    tables: Mapping[Recorded, bytes],
    blocks: int,
    limits: StepLimits,
    mixed: Mode = Mode.FULL,
) -> tuple[RecordedStep, ...]:
    """Place the first player and every other beside it, and build all graphs.

    Args:
        first: made from the table of `largest_first(tables)[0]`, with all cubins.
        tables: every recorded table.
        blocks: KV blocks; recorded kernels have their number inside.
        limits: of a step.
        mixed: how steps that are no pure decode are launched.

    Raises:
        IntegrityError: tables of different memory, or of other steps than their names say.
        DeviceError: out of memory.
    """
    steps: list[RecordedStep] = []
    with ExitStack() as failed:
        for recorded in largest_first(tables):
            handle = first.beside(tables[recorded]) if steps else first
            if steps:
                failed.callback(handle.close)
            mode = Mode.FULL if recorded.uniform else mixed
            steps.append(_place_one(handle, recorded, blocks, limits, mode))
            if steps[-1].dtype != steps[0].dtype:
                raise IntegrityError("recorded tables have logits of different dtypes")
        failed.pop_all()
    return tuple(steps)


def _place_one(
    handle: PlayerHandle, recorded: Recorded, blocks: int, limits: StepLimits, mode: Mode
) -> RecordedStep:
    handle.place(blocks, blocks, SLOTS, RING)
    layout = Layout.read(handle.describe())
    check_step(layout, {"T": recorded.tokens, "B": recorded.seqs, "K": blocks}, limits)
    writers = tuple(
        StepInputs(SlotArrays(layout, slot), _sized(limits, recorded))
        for slot in range(len(layout.slots))
    )
    step = RecordedStep(recorded, handle, layout, writers, mode)
    handle.build([step.shape], 1, THREADS)
    return step


class RecordedRunner:
    """A decoder's steps as recorded graphs; a `StepRunner`.

    Attributes:
        limits: of a step; rows are those of the largest recorded one.
        stat: how steps were dispatched.
        mode: the graph mode that was asked for.
        arena: the memory: `sleep`, `wake`, `discard`.
    """

    samples = False
    """Recorded steps end with logits."""

    def __init__(
        self,
        steps: Sequence[RecordedStep],
        dispatcher: Dispatcher,
        limits: StepLimits,
        stat: GraphStat,
        arena: Any,
    ) -> None:
        self.limits, self.stat, self.mode, self.arena = limits, stat, dispatcher.mode, arena
        self._steps = {step.recorded: step for step in steps}
        self._dispatcher, self._turn, self._replays = dispatcher, Turn(), 0
        self._logits = next(iter(self._steps.values())).layout.tensor("logits")

    @property
    def gate(self) -> CaptureGate:
        """How many graphs there are, and how often one ran."""
        captures = sum(step.graphs for step in self._steps.values())
        return CaptureGate(open=False, captures=captures, replays=self._replays)

    def capture_all(self) -> None:
        """Nothing: every graph is there."""

    def graph_list(self) -> list[dict[str, object]]:
        """The graphs there are, once all have come, by recorded step."""
        counts = [step.handle.graphs(wait=True) for step in self._steps.values()]
        return [
            {
                "mode": step.mode.name.lower(),
                "tokens": step.recorded.tokens,
                "seqs": step.recorded.seqs,
                "uniform": step.recorded.uniform,
                "graphs": step.graphs,
                "built": count.ready == count.wanted,
            }
            for step, count in zip(self._steps.values(), counts, strict=True)
        ]

    def step(self, batch: StepBatch) -> npt.NDArray[np.floating[Any]]:
        """Run one step.

        Returns:
            Logits [B, vocab] of the batch's sequences, valid until the next step; fp32 for bf16.

        Raises:
            GraphError: no recorded step is large enough.
            UsageError: an index in the batch is out of bounds, or another step is under way.
        """
        with self._turn.taken():
            decision = self._dispatcher.dispatch(batch.tokens, batch.uniform)
            step = self._fitting(batch)
            shape, slot = step.shape, step.handle.slot()
            step.inputs[slot].write(batch, shape.tokens, shape.seqs)
            address = step.handle.step(shape, batch.seqs, slot, Inputs.STEP, Read.LOGITS)
            self._replays += step.graphs
            self.stat.record(batch.tokens, decision, batch.seqs)
            return self._logits.rows_at(address, batch.seqs)

    def close(self) -> None:
        """Give all device memory back."""
        for recorded in sorted(self._steps):  # the largest, whose memory it is, last
            self._steps[recorded].handle.close()

    def _fitting(self, batch: StepBatch) -> RecordedStep:
        fit = [
            recorded
            for recorded in self._steps
            if batch.tokens <= recorded.tokens
            and batch.seqs <= recorded.seqs
            and (batch.uniform or not recorded.uniform)
        ]
        if not fit:
            raise GraphError(
                f"no recorded step holds {batch.tokens} rows of {batch.seqs} sequences",
                f"recorded are {', '.join(f'{r.tokens}x{r.seqs}' for r in sorted(self._steps))}",
                "record larger ones (--shapes), or compile with --compile vcc, which has all sizes",
            )
        return self._steps[min(fit, key=lambda one: (one.tokens, not one.uniform, one.seqs))]


def _sized(limits: StepLimits, recorded: Recorded) -> StepLimits:
    return replace(limits, max_tokens=recorded.tokens, max_seqs=recorded.seqs)
