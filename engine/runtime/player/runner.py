"""PlayerRunner: a decoder's steps on a CUDA device, in any graph mode; a `StepRunner`."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vcc.engine.graphs.table.layout import DTYPE_NAMES
from vcc.engine.runtime.batch import StepBatch, StepLimits
from vcc.engine.runtime.by_size import chosen, with_code
from vcc.engine.runtime.descriptors import Dispatch
from vcc.engine.runtime.device_steps import SampleRow
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.kv import Int32Array
from vcc.engine.runtime.player.buffers import IoBuffer
from vcc.engine.runtime.player.cache import CacheMemory
from vcc.engine.runtime.player.decode import Decoding
from vcc.engine.runtime.player.device import Device
from vcc.engine.runtime.player.gemm_report import GemmReport
from vcc.engine.runtime.player.gemms import Gemms, NoGemms
from vcc.engine.runtime.player.handle import (
    GraphCounts,
    Inputs,
    Mode,
    Parts,
    PlayerHandle,
    Read,
    Shape,
)
from vcc.engine.runtime.player.layout import Layout
from vcc.engine.runtime.player.sampling import write_sampling
from vcc.engine.runtime.player.shapes import StepShapes
from vcc.engine.runtime.player.tables import StepTable
from vcc.engine.runtime.turn import Turn
from vcc.engine.runtime.wrapper import CaptureGate

if TYPE_CHECKING:
    from vcc.engine.runtime.adapters import Adapters


@dataclass(frozen=True, slots=True)
class PlayerParts:
    """What a runner is made of.

    `tables` has one for each range of tokens, the one whose memory all share first; `refill` copies
    the weights to the device again; `gemms` are the matrix products of the site's store, which may
    still be on their way.
    """

    device: Device
    tables: tuple[StepTable, ...]
    limits: StepLimits
    shapes: StepShapes
    stat: GraphStat
    arena: Any
    refill: Callable[[], object] = lambda: None
    adapters: Callable[[Turn], Adapters | None] = lambda turn: None
    gemms: Gemms = field(default_factory=lambda: NoGemms(GemmReport(0, 0)))

    @property
    def handle(self) -> PlayerHandle:
        """The player whose memory all share."""
        return self.tables[0].handle

    @property
    def layout(self) -> Layout:
        """Where its tensors lie; inputs at the largest sizes of all."""
        return self.tables[0].layout

    def table(self, tokens: int) -> StepTable:
        """What runs a step of so many tokens, padding included."""
        return self.tables[0] if len(self.tables) == 1 else chosen(self.tables, tokens)

    @property
    def graphs(self) -> int:
        """Graphs that are declared."""
        return self.shapes.count(lambda tokens: self.table(tokens).layout.segments[0])


class PlayerRunner:
    """A step on fixed device memory.

    Attributes:
        limits: what a step holds.
        stat: how steps were dispatched.
        mode: the graph mode that was asked for.
        samples: whether the device can choose tokens itself (`sample`, `decoding`).
        arena: the memory: `sleep`, `wake`, `discard`.
        cache: which KV blocks have memory.
        lacking: whether recording matrix products would make the next boot's steps faster.
    """

    def __init__(self, parts: PlayerParts) -> None:
        self.limits, self.stat = parts.limits, parts.stat
        self.mode = parts.shapes.dispatcher.mode
        self.samples = all(one.layout.samples for one in parts.tables)
        self.arena = parts.arena
        self.lacking = parts.gemms.report.lacking
        self._parts = parts
        self._turn = Turn()
        self.adapters = parts.adapters(self._turn)
        self.cache = CacheMemory(parts.handle, parts.limits.num_blocks)
        self._inputs = {one.handle: one.writers(parts.limits) for one in parts.tables}
        self._logits = parts.layout.tensor("logits")
        self._decoding: Decoding | None = None
        # What nobody uses any more goes back to the device; an ending process does not wait.
        weakref.finalize(self, _close, parts.gemms, parts.tables, parts.arena).atexit = False

    @property
    def gate(self) -> CaptureGate:
        """How many graphs there are (some may still be under way), and how often one ran."""
        counts = graph_counts(self._parts.tables)
        made = counts.graphs if counts.failed else self._parts.graphs
        launched = sum(one.handle.stats()["graph_launches"] for one in self._parts.tables)
        return CaptureGate(open=False, captures=made, replays=launched)

    def capture_all(self) -> None:
        """Nothing: the first graph is there, threads build the others."""

    def wait_graphs(self) -> GraphCounts:
        """Until every declared graph is built."""
        return graph_counts(self._parts.tables, wait=True)

    def step(self, batch: StepBatch) -> npt.NDArray[np.floating[Any]]:
        """Run one step.

        Returns:
            Logits [B, vocab] of the batch's sequences, valid until the next step; fp32 for bf16.

        Raises:
            UsageError: an index in the batch is out of bounds, or another step is under way.
            DeviceError: the device is lost, this process was forked after the load, or there is no
                memory for blocks of the batch that were trimmed.
            GraphError: memory of the step sleeps or was discarded.
        """
        with self._turn.taken():
            decision, shape, table, slot = self._prepare(batch)
            address = self._run(table, shape, batch.seqs, slot, Inputs.STEP, Read.LOGITS)
            self.stat.record(batch.tokens, decision, batch.seqs)
            return self._logits.rows_at(address, batch.seqs)

    def sample(self, batch: StepBatch, rows: Sequence[SampleRow]) -> Int32Array:
        """Run one step and choose a token of each sequence on the device.

        Args:
            batch: the step.
            rows: how to choose, one a sequence.

        Returns:
            int32 [B], words that `told` of `device_steps` reads; errors as `step`.
        """
        with self._turn.taken():
            decision, shape, table, slot = self._prepare(batch)
            write_sampling(table.layout, slot, rows, shape.seqs)
            sampled = Shape(shape.mode, shape.tokens, shape.seqs, shape.parts | Parts.SAMPLE)
            inputs = Inputs.STEP | Inputs.SAMPLING
            self._run(table, sampled, batch.seqs, slot, inputs, Read.TOKENS)
            self.stat.record(batch.tokens, decision, batch.seqs)
            words: Int32Array = table.layout.tokens()[0, : batch.seqs].copy()
            return words

    def graph_list(self) -> list[dict[str, object]]:
        """The graphs there are, once all have come; a piecewise one is a graph for each piece."""
        parts, counts = self._parts, self.wait_graphs()
        return [
            {
                "mode": shape.mode.name.lower(),
                "tokens": shape.tokens,
                "seqs": shape.seqs,
                "uniform": Parts.UNIFORM in shape.parts,
                "graphs": parts.table(shape.tokens).layout.segments[0]
                if shape.mode is Mode.PIECEWISE
                else 1,
                "built": counts.ready == counts.wanted,
            }
            for shape in sorted(self._parts.shapes.graphs(0)[0])
        ]

    def gemm_routes(self) -> list[dict[str, object]]:
        """Who computes the matrix products of these graphs, equal ones counted together."""
        self._parts.gemms.wait()
        sizes = {(shape.tokens, shape.seqs) for shape in self._parts.shapes.graphs(0)[0]}
        found: Counter[tuple[tuple[str, object], ...]] = Counter()
        for tokens, seqs in sorted(sizes):
            for one in self._parts.table(tokens).handle.gemms(tokens, seqs):
                out = DTYPE_NAMES[one["out"]] if one["scales"] else ""
                named = {**one, "dtype": DTYPE_NAMES[one["dtype"]], "out": out}
                found[tuple((name, value) for name, value in named.items() if name != "node")] += 1
        return [{**dict(product), "count": count} for product, count in found.items()]

    @property
    def decoding(self) -> Decoding:
        """The decode loop of this runner."""
        if self._decoding is None:
            parts = self._parts
            self._decoding = Decoding(
                parts.tables, parts.limits, parts.shapes, parts.stat, self._turn, self.cache
            )
        return self._decoding

    @property
    def io(self) -> dict[str, IoBuffer]:
        """Inputs, outputs and states on the device by name, at their largest sizes."""
        kinds = ("input", "output", "state")
        tensors = self._parts.layout.tensors.values()
        ordinal = self._parts.device.ordinal
        return {one.name: IoBuffer(self, one, ordinal) for one in tensors if one.role in kinds}

    @property
    def player(self) -> PlayerHandle:
        """The native player, of the first table where there are several."""
        return self._parts.handle

    def reload(self) -> None:
        """Copy the weights to the device again, after they were discarded and woken.

        Raises:
            ModelError: the checkpoint is not what it was.
            DeviceError: their memory is still asleep.
        """
        with self._turn.taken():
            self._parts.refill()
            self.arena.mark_filled("weights")
        if self.adapters is not None:
            self.adapters.rewrite()

    def trim(self, keep: int = 0) -> int:
        """Give back the memory of KV blocks behind the last that a request under way holds.

        They keep their addresses, and get memory again when a request or a step needs them.

        Args:
            keep: blocks from the first that stay, for steps of your own.

        Returns:
            Bytes given back.

        Raises:
            UsageError: a step is under way.
        """
        with self._turn.taken():
            return self.cache.trim(keep)

    def close(self) -> None:
        """Give all device memory back."""
        _close(self._parts.gemms, self._parts.tables, self._parts.arena)

    def _prepare(self, batch: StepBatch) -> tuple[Dispatch, Shape, StepTable, int]:
        parts = self._parts
        decision = parts.shapes.dispatcher.dispatch(batch.tokens, batch.uniform, loras=batch.loras)
        shape = parts.shapes.of(
            decision, batch.tokens, batch.seqs, uniform=batch.uniform, loras=batch.loras
        )
        table = parts.table(shape.tokens)
        slot = table.handle.slot()
        self._inputs[table.handle][slot].write(batch, shape.tokens, shape.seqs)
        if self.cache.trimmed:
            self.cache.need(batch.block_table, batch.slot_mapping // parts.limits.block_size)
        return with_code(decision, table, parts.tables), shape, table, slot

    def _run(
        self, table: StepTable, shape: Shape, rows: int, slot: int, inputs: Inputs, read: Read
    ) -> int:
        if self._decoding is not None:
            self._decoding.forget()
        return table.handle.step(shape, rows, slot, inputs, read)


def _close(gemms: Gemms, tables: Sequence[StepTable], arena: Any) -> None:
    gemms.close()
    for one in reversed(tables):  # the one whose memory it is last
        one.handle.close()
    arena.close()


def graph_counts(tables: Sequence[StepTable], *, wait: bool = False) -> GraphCounts:
    """How far the graphs of all tables are; `wait` until all are built."""
    each = [one.handle.graphs(wait=wait) for one in tables]
    return GraphCounts(
        wanted=sum(one.wanted for one in each),
        ready=sum(one.ready for one in each),
        failed=sum(one.failed for one in each),
        graphs=sum(one.graphs for one in each),
        failure=next((one.failure for one in each if one.failed), ""),
    )
