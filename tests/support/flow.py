"""The whole flow in one process: a request, its artifact, a booted runner, its logits."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.events import NullEvents
from vcc.engine.monitor import Counters
from vcc.engine.pipeline import build
from vcc.engine.request import BuildRequest, Built, settle
from vcc.engine.runtime.batch import StepBatch, StepLimits, StepRunner
from vcc.engine.runtime.boot import Booted
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.requests import Request
from vcc.engine.runtime.sample import GREEDY, SamplingParams
from vcc.engine.session import Session, open_session


@contextmanager
def kept_environment() -> Iterator[None]:
    """A build changes its process's environment; a test process has more to do."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def ask(model: object, **options: object) -> BuildRequest:
    """A request in the words of the command line; see `ModelOptions`."""
    # All three pieces of a decoder at once: on two cores the third would otherwise compile alone.
    given = {"jobs": 3, **options}
    return build_request(ModelOptions(str(model), **given))  # type: ignore[arg-type]


def built(asked: BuildRequest, store: Store, counters: Counters | None = None) -> Built:
    """The artifact of a request, from the store or compiled now."""
    with kept_environment():
        return build(asked, store, NullEvents(), counters or Counters())


def booted(
    asked: BuildRequest, store: Store, lengths: Sequence[int] = (), golden: str = "all"
) -> Booted:
    """A runner from the store, which must have the artifact; every golden is checked."""
    session = Session(settle(asked), store, golden, require_warm=True)
    return open_session(session, lengths).booted


def answers(
    runner: StepRunner,
    prompts: Sequence[Sequence[int]],
    new: int,
    params: SamplingParams = GREEDY,
) -> list[list[int]]:
    """The generated tokens of each prompt, all prompts batched together."""
    asked = [Request(i, tuple(ids), params, new) for i, ids in enumerate(prompts)]
    found: list[list[int]] = [[] for _ in prompts]
    for event in generate(runner, asked):
        found[event.request].append(event.token)
    return found


def draw_prompts(lengths: Sequence[int], vocab: int, seed: int = 7) -> list[list[int]]:
    """Random prompts without special tokens."""
    source = random.Random(seed)
    return [[source.randrange(4, vocab) for _ in range(count)] for count in lengths]


@dataclass(frozen=True)
class Narrow:
    """A runner that allows less than it could: smaller steps, fewer sequences or KV blocks."""

    runner: StepRunner
    limits: StepLimits

    def step(self, batch: StepBatch) -> Tensor:
        """The inner runner's step, within the narrower limits."""
        assert batch.tokens <= self.limits.max_tokens
        assert batch.seqs <= self.limits.max_seqs
        return self.runner.step(batch)


@dataclass
class Forcer:
    """Sequences whose every token is given, over a runner's paged KV on scattered blocks.

    Args:
        runner: a booted artifact.
        every_row: ask for the logits of each token, not of each sequence's last. A step has one
            row of logits a sequence, so it is repeated, each time for other rows.
        slots: the slot of each sequence's adapter, where it has one.
    """

    runner: StepRunner
    every_row: bool = True
    slots: Mapping[int, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    tables: dict[int, list[int]] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = list(range(self.runner.limits.num_blocks))
        random.Random(0).shuffle(self.free)

    def step(self, work: Mapping[int, Sequence[int]]) -> dict[int, Tensor]:
        """One step: each sequence's next tokens -> its logits, [tokens or 1, vocab]."""
        counts = [len(tokens) for tokens in work.values()]
        batch, most = self.batch(work), max(counts)
        passes = []
        for row in range(most) if self.every_row else (most - 1,):
            rows = [min(row, count - 1) for count in counts]
            wanted = batch.query_start[:-1] + np.asarray(rows, dtype=np.int32)
            passes.append(self.runner.step(replace(batch, logits_index=wanted)).float().clone())
        logits = torch.stack(passes, dim=1)
        keep = counts if self.every_row else [1] * len(counts)
        return {s: logits[i, : keep[i]] for i, s in enumerate(work)}

    def batch(self, work: Mapping[int, Sequence[int]]) -> StepBatch:
        """The step of each sequence's next tokens, for the logits of the last of each."""
        counts = [len(tokens) for tokens in work.values()]
        starts = [0, *np.cumsum(counts).tolist()]
        positions = [p for s, tokens in work.items() for p in self._grow(s, len(tokens))]
        owners = [s for s, tokens in work.items() for _ in tokens]
        width = self.runner.limits.max_blocks_per_seq
        fields = {
            "input_ids": [token for tokens in work.values() for token in tokens],
            "positions": positions,
            "slot_mapping": [self._slot(s, p) for s, p in zip(owners, positions, strict=True)],
            "block_table": [self.tables[s] + [0] * (width - len(self.tables[s])) for s in work],
            "seq_lens": [self.lengths[s] for s in work],
            "query_start": starts,
            "logits_index": [end - 1 for end in starts[1:]],
        }
        arrays = {name: np.asarray(values, dtype=np.int32) for name, values in fields.items()}
        loras = np.asarray([self.slots.get(s, -1) for s in owners], dtype=np.int32)
        uniform = starts[-1] == len(work)
        return StepBatch(**arrays, uniform=uniform, lora_slot=loras if self.slots else None)

    def _grow(self, sequence: int, count: int) -> list[int]:
        start = self.lengths.get(sequence, 0)
        self.lengths[sequence] = start + count
        table = self.tables.setdefault(sequence, [])
        while len(table) * self.runner.limits.block_size < start + count:
            table.append(self.free.pop())
        return list(range(start, start + count))

    def _slot(self, sequence: int, position: int) -> int:
        size = self.runner.limits.block_size
        return self.tables[sequence][position // size] * size + position % size


def forced_logits(
    asked: BuildRequest,
    store: Store,
    prompts: Mapping[int, Sequence[int]],
    schedule: Sequence[Mapping[int, int]],
) -> Tensor:
    """Logits [tokens, vocab] of all prompts one after another, from a runner of its own."""
    found = force(Forcer(booted(asked, store, [256] * len(prompts)).runner), prompts, schedule)
    return torch.cat([found[one] for one in prompts])


def logits_of_both_boots(
    asked: BuildRequest,
    store: Store,
    prompts: Mapping[int, Sequence[int]],
    schedule: Sequence[Mapping[int, int]],
) -> Tensor:
    """`forced_logits` of what was built, which a second build finds and whose boot gives again.

    Raises:
        AssertionError: the second build made something, or its logits differ.
    """
    first = forced_logits(asked, store, prompts, schedule)
    assert built(asked, store).reused
    assert torch.equal(forced_logits(asked, store, prompts, schedule), first)
    return first


def force(
    forcer: Forcer,
    prompts: Mapping[int, Sequence[int]],
    schedule: Sequence[Mapping[int, int]],
) -> dict[int, Tensor]:
    """Feed prompts by a schedule of {sequence: tokens} steps.

    What it leaves over is fed token by token. Returns each sequence's logits in order: of every
    token, or of the last of each step, as the forcer asks.
    """
    done = dict.fromkeys(prompts, 0)
    parts: dict[int, list[Tensor]] = {sequence: [] for sequence in prompts}

    def feed(step: Mapping[int, int]) -> None:
        work = {s: prompts[s][done[s] : done[s] + count] for s, count in step.items()}
        for sequence, logits in forcer.step(work).items():
            parts[sequence].append(logits)
            done[sequence] += len(work[sequence])

    for step in schedule:
        feed(step)
    while left := [s for s in prompts if done[s] < len(prompts[s])]:
        feed(dict.fromkeys(left, 1))
    return {sequence: torch.cat(found) for sequence, found in parts.items()}
