"""Scheduler: which tokens of which sequences make the next step.

Continuous batching, first come first served: running sequences go first, then waiting ones are
admitted while the token budget, the sequence limit and the KV blocks last. A long prompt is
prefilled in chunks beside the others' decode. When blocks run out, the youngest running sequence
gives its blocks back and is computed again later; the oldest therefore always gets on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vcc.engine.runtime.batch import Chunk, StepLimits
from vcc.engine.runtime.kv import BlockMemory, BlockPool, BlockTable, Int32Array
from vcc.engine.runtime.requests import Finish, Request, check_request


class LiveSequence:
    """A request under way: its tokens, and how many of them are in the KV cache."""

    __slots__ = ("computed", "length", "limit", "request", "table", "tokens")

    def __init__(self, request: Request, limits: StepLimits, pool: BlockPool) -> None:
        count = len(request.token_ids)
        self.request = request
        self.limit = min(count + request.max_new_tokens, limits.context)
        self.tokens: Int32Array = np.zeros(self.limit, dtype=np.int32)
        self.tokens[:count] = request.token_ids
        self.length, self.computed = count, 0
        self.table = BlockTable(pool, limits.max_blocks_per_seq)

    @property
    def generated(self) -> int:
        """Tokens of the answer so far."""
        return self.length - len(self.request.token_ids)

    @property
    def decodes(self) -> bool:
        """Only its last known token is left to compute."""
        return self.length - self.computed == 1 and self.generated > 0

    def chunk(self, budget: int) -> Chunk:
        """The next rows to compute, at most `budget`."""
        end = min(self.length, self.computed + budget)
        return Chunk(self.tokens[self.computed : end], self.computed, self.table)

    def append(self, token: int) -> Finish | None:
        """Add an answered token; the reason, when it is the last."""
        self.tokens[self.length] = token
        self.length += 1
        if token in self.request.eos:
            return Finish.STOP
        if self.generated >= self.request.max_new_tokens:
            return Finish.LENGTH
        return Finish.CONTEXT if self.length >= self.limit else None


@dataclass(frozen=True, slots=True)
class DecodeRun:
    """Sequences that decode together for `steps` steps, with blocks for all of them.

    `finish`: so many ended sequences make room for others, so the run should end then.
    """

    sequences: tuple[LiveSequence, ...]
    steps: int
    finish: int


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One sequence's part of a step; `samples` when its last known token is computed by it."""

    sequence: LiveSequence
    chunk: Chunk

    @property
    def samples(self) -> bool:
        """The step's logits of this sequence give its next token."""
        return self.chunk.start + len(self.chunk.tokens) == self.sequence.length


class Scheduler:
    """The queue of a run.

    Args:
        limits: what a step and the cache hold.
        requests: all prompts, checked before anything runs.
        memory: who gives KV blocks their memory; None where all have it.

    Raises:
        UsageError: a prompt that cannot be answered.
    """

    def __init__(
        self,
        limits: StepLimits,
        requests: Sequence[Request] = (),
        memory: BlockMemory | None = None,
    ) -> None:
        self._limits, self._memory = limits, memory
        self._pool = BlockPool(limits.num_blocks, limits.block_size, memory)
        self._waiting: deque[LiveSequence] = deque()
        self._running: list[LiveSequence] = []
        self.preemptions = 0
        for request in requests:  # all of them before the first runs
            self.add(request)

    def add(self, request: Request) -> None:
        """Queue one more request, also while others run."""
        check_request(request, self._limits)
        self._waiting.append(LiveSequence(request, self._limits, self._pool))

    @property
    def busy(self) -> bool:
        """Something is left to do."""
        return bool(self._waiting or self._running)

    @property
    def free_blocks(self) -> int:
        """KV blocks not held by any sequence."""
        return self._pool.free_blocks

    @property
    def reach(self) -> int:
        """KV blocks from the first to the last that a sequence holds."""
        return self._pool.reach

    def schedule(self) -> tuple[Scheduled, ...]:
        """The next step's sequences, oldest first; never empty while busy.

        Raises:
            DeviceError: no sequence finds memory for its blocks; a later call may.
        """
        budget, before = self._limits.max_tokens, self.preemptions
        step: list[Scheduled] = []
        position = 0
        while position < len(self._running) and budget:
            sequence = self._running[position]
            if not self._make_room(sequence):
                break
            budget -= self._take(step, sequence, budget)
            position += 1
        if self.preemptions == before:
            self._admit(step, budget)
        if not step and self._memory is not None and self.busy:
            raise self._memory.shortage()
        return tuple(step)

    def decode_run(self, most: int) -> DecodeRun | None:
        """The next steps as one run, if nothing else can happen in them; at most `most`.

        None when a prompt is still to compute, a waiting sequence could begin, or there are no
        blocks for even one step without taking them from a sequence.
        """
        running = tuple(self._running)
        if not running or not all(sequence.decodes for sequence in running) or self._may_admit():
            return None
        steps = min(most, *(sequence.limit - sequence.length for sequence in running))
        while steps > 0:
            ends = [sequence.length + steps - 1 for sequence in running]
            if all(s.table.append(end) for s, end in zip(running, ends, strict=True)):
                return DecodeRun(running, steps, 1 if self._waiting else len(running))
            steps //= 2
        return None

    def commit(self, scheduled: Scheduled, token: int | None) -> Finish | None:
        """Record that the step ran; `token` is what its sequence answered, if it samples."""
        return self.commit_rows(scheduled.sequence, len(scheduled.chunk.tokens), token)

    def commit_rows(self, sequence: LiveSequence, rows: int, token: int | None) -> Finish | None:
        """As `commit`, for a sequence of which `rows` rows were computed."""
        sequence.computed += rows
        finish = None if token is None else sequence.append(token)
        if finish is not None:
            self._running.remove(sequence)
            sequence.table.release()
        return finish

    def drop(self, lora: str) -> tuple[Request, ...]:
        """Give up all requests for an adapter, between two steps; they are returned."""
        return self._drop(lambda request: request.lora == lora)

    def cancel(self, index: int) -> bool:
        """Give up a request, between two steps; whether there was one of this number."""
        return bool(self._drop(lambda request: request.index == index))

    def _drop(self, which: Callable[[Request], bool]) -> tuple[Request, ...]:
        gone = [one for one in (*self._running, *self._waiting) if which(one.request)]
        self._running = [one for one in self._running if one not in gone]
        self._waiting = deque(one for one in self._waiting if one not in gone)
        for one in gone:
            one.table.release()
        return tuple(one.request for one in gone)

    def loras(self) -> frozenset[str]:
        """Names of the adapters of all requests under way."""
        return frozenset(one.request.lora for one in (*self._running, *self._waiting))

    def _has_slot(self, sequence: LiveSequence) -> bool:
        """Whether its adapter fits beside those of the running sequences."""
        running = {one.request.lora for one in (*self._running, sequence)} - {""}
        return not sequence.request.lora or len(running) <= self._limits.max_loras

    def _may_admit(self) -> bool:
        """Whether the first waiting sequence could begin now."""
        if not self._waiting or len(self._running) >= self._limits.max_seqs:
            return False
        if not self._has_slot(self._waiting[0]):
            return False
        return self._pool.blocks_for(self._waiting[0].length) <= self._pool.free_blocks

    def _take(self, step: list[Scheduled], sequence: LiveSequence, budget: int) -> int:
        chunk = sequence.chunk(budget)
        step.append(Scheduled(sequence, chunk))
        return len(chunk.tokens)

    def _make_room(self, sequence: LiveSequence) -> bool:
        """Blocks for all known tokens of a running sequence, taken from younger ones if needed."""
        while not sequence.table.append(sequence.length):
            youngest = self._running.pop()
            youngest.table.release()
            youngest.computed = 0
            self._waiting.appendleft(youngest)
            self.preemptions += 1
            if youngest is sequence:
                return False
        return True

    def _admit(self, step: list[Scheduled], budget: int) -> None:
        while self._waiting and budget and len(self._running) < self._limits.max_seqs:
            sequence = self._waiting[0]
            if not self._has_slot(sequence):
                return
            # Blocks for the whole of it at once: admitting on hope would only be preempted.
            if not sequence.table.append(sequence.length):
                return
            self._running.append(self._waiting.popleft())
            budget -= self._take(step, sequence, budget)
