"""Decoding: runs of decode steps that the device does by itself, seen token by token."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vcc.engine.runtime.batch import StepLimits
from vcc.engine.runtime.by_size import chosen, with_code
from vcc.engine.runtime.descriptors import count_loras
from vcc.engine.runtime.device_steps import DecodeRow, SampleRow, told
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.kv import Int32Array
from vcc.engine.runtime.player.cache import CacheMemory
from vcc.engine.runtime.player.handle import DecodeCall, Mode, PlayerHandle, Shape
from vcc.engine.runtime.player.layout import Layout
from vcc.engine.runtime.player.sampling import write_sampling, write_tokens
from vcc.engine.runtime.player.shapes import StepShapes
from vcc.engine.runtime.player.tables import StepTable
from vcc.engine.runtime.turn import Turn

AHEAD = 1
"""Steps launched before the last one's tokens are seen: the device never waits for the host."""

MOST_GAPS = 1 << 16
LOOK = 50e-6
"""Seconds between looks at the ring; the loop itself does not wait for who looks."""


@dataclass(slots=True)
class _State:
    """What the device knows from the last run; empty when a run must send everything."""

    shape: Shape | None = None
    blocks: Int32Array | None = None
    next: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Request, position, token and slot of the adapter of each row."""


class Decoding:
    """The decode loop of a step's tables. It shares the step's turn: one user at a time.

    `longest` is the most steps of a run.
    """

    def __init__(
        self,
        tables: Sequence[StepTable],
        limits: StepLimits,
        shapes: StepShapes,
        stat: GraphStat,
        turn: Turn,
        cache: CacheMemory,
    ) -> None:
        self._tables, self._limits, self._cache = tables, limits, cache
        self._shapes, self._stat, self._turn = shapes, stat, turn
        self._state = _State()
        self.gaps: list[int] = []
        self.longest = min(one.layout.ring[1] for one in tables)

    def forget(self) -> None:
        """Something else changed the device's inputs: the next run sends all of them."""
        self._state = _State()

    def run(
        self, rows: Sequence[DecodeRow], steps: int, finish: int
    ) -> Generator[Int32Array, None, None]:
        """Decode up to `steps` steps.

        Args:
            rows: the sequences; each has blocks for all steps.
            steps: at most `longest`.
            finish: stop when so many sequences have ended by a token of theirs.

        Yields:
            int32 [rows] as soon as a step's tokens are there, as words that `told` reads. A
            sequence that has ended goes on with meaningless ones. Closing the iterator ends the
            run.

        Raises:
            UsageError: another step is under way.
            DeviceError: a kernel failed, or there is no memory for blocks of the rows.
        """
        with self._turn.taken():
            self._cache.need(*(row.blocks for row in rows))
            yield from self._run(rows, steps, finish)

    def _run(
        self, rows: Sequence[DecodeRow], steps: int, finish: int
    ) -> Generator[Int32Array, None, None]:
        count = len(rows)
        loras = count_loras(row.slot for row in rows)
        decision = self._shapes.dispatcher.dispatch(count, uniform=True, loras=loras)
        shape = self._shapes.of(decision, count, count, uniform=True, loras=loras)
        if shape.tokens != shape.seqs:  # padded beyond the most sequences
            shape = Shape(Mode.PLAIN, count, count, shape.parts)
        table = chosen(self._tables, shape.tokens)
        decision = with_code(decision, table, self._tables)
        call = self._call(table, shape, rows, min(steps, self.longest), finish)
        loop = _Loop(table.handle, shape, call)
        seen, words = 0, np.zeros(count, np.int32)
        try:
            for row in loop.visible():
                words = table.layout.tokens()[row, :count].copy()
                seen += 1
                yield words
        finally:
            done = loop.close()
            for _ in range(done):
                self._stat.record(count, decision, count)
            self._keep_gaps(call.gaps[: max(0, done - 1)])
            if done == call.steps == seen:
                self._remember(shape, rows, words, done)
            else:
                self.forget()

    def _call(
        self, table: StepTable, shape: Shape, rows: Sequence[DecodeRow], steps: int, finish: int
    ) -> DecodeCall:
        slot = table.handle.slot()
        changed = self._changed(shape, rows)
        self._write(table.layout, slot, shape, rows, whole=changed is None)
        stops = [sorted(row.stops) for row in rows]
        return DecodeCall(
            rows=len(rows),
            steps=steps,
            slot=slot,
            changed=changed,
            stops=np.array([token for one in stops for token in one] or [0], np.int32),
            stop_start=np.cumsum([0, *map(len, stops)], dtype=np.int32),
            finish=finish,
            ahead=AHEAD,
            control=np.zeros(2, np.int64),
            gaps=np.zeros(steps, np.int64),
        )

    def _changed(self, shape: Shape, rows: Sequence[DecodeRow]) -> Int32Array | None:
        """Rows of the block table that are new, or None when the state is another one."""
        state = self._state
        now = [(one.sample.request, one.position, one.sample.token, one.slot) for one in rows]
        if state.shape != shape or state.next != now or state.blocks is None:
            return None
        blocks = np.stack([row.blocks for row in rows])
        found: Int32Array = np.flatnonzero((blocks != state.blocks).any(axis=1)).astype(np.int32)
        return found

    def _write(
        self, layout: Layout, slot: int, shape: Shape, rows: Sequence[DecodeRow], *, whole: bool
    ) -> None:
        count, seqs = len(rows), shape.seqs
        table = layout.array(slot, "block_table").reshape(-1, self._limits.max_blocks_per_seq)
        table[:count] = [row.blocks for row in rows]
        if not whole:
            return
        table[count:seqs] = 0
        ramp = np.arange(seqs + 1, dtype=np.int32)
        layout.array(slot, "query_start")[: seqs + 1] = ramp
        layout.array(slot, "logits_index")[:seqs] = ramp[:seqs]
        for name in ("positions", "input_ids", "seq_lens"):
            layout.array(slot, name)[:seqs] = 0
        layout.array(slot, "slot_mapping")[:seqs] = -1
        if self._limits.max_loras:
            layout.array(slot, "lora_slot")[:seqs] = -1
            layout.array(slot, "lora_slot")[:count] = [row.slot for row in rows]
        # The head of each step advances first, so what it starts from is one step back.
        layout.array(slot, "positions")[:count] = [row.position - 1 for row in rows]
        samples = [
            SampleRow(one.params, one.request, one.step - 1, one.token)
            for one in (row.sample for row in rows)
        ]
        write_sampling(layout, slot, samples, seqs)
        write_tokens(layout, slot, samples, seqs)

    def _remember(
        self, shape: Shape, rows: Sequence[DecodeRow], words: Int32Array, done: int
    ) -> None:
        self._state = _State(
            shape,
            np.stack([row.blocks for row in rows]),
            [
                (row.sample.request, row.position + done, told(int(word))[0], row.slot)
                for row, word in zip(rows, words, strict=True)
            ],
        )

    def _keep_gaps(self, gaps: npt.NDArray[np.int64]) -> None:
        self.gaps += [int(gap) for gap in gaps if gap > 0]
        del self.gaps[:-MOST_GAPS]


class _Loop:
    """The native loop in a thread of its own, and who looks at what it makes visible."""

    def __init__(self, handle: PlayerHandle, shape: Shape, call: DecodeCall) -> None:
        self._call, self._done = call, 0
        self._error: BaseException | None = None

        def work() -> None:
            try:
                self._done = handle.decode(shape, call)
            except BaseException as error:  # raised again where the tokens are taken
                self._error = error

        self._thread = threading.Thread(target=work, name="vcc-decode", daemon=True)
        self._thread.start()

    def visible(self) -> Iterator[int]:
        """Numbers of the steps whose tokens are there, until the loop ends."""
        seen = 0
        while True:
            alive = self._thread.is_alive()
            while seen < int(self._call.control[1]):
                yield seen
                seen += 1
            if not alive:
                break
            time.sleep(LOOK)
        if self._error is not None:
            raise self._error

    def close(self) -> int:
        """End the loop; steps whose tokens were seen by it."""
        self._call.control[0] = 1
        self._thread.join()
        return self._done
