"""Generation on a device that chooses tokens itself: prompts in chunks, decoding in long runs."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from vcc.engine.runtime.batch import BatchBuilder, StepBatch, StepLimits
from vcc.engine.runtime.kv import Int32Array
from vcc.engine.runtime.placed import chunks_of, slots_of
from vcc.engine.runtime.requests import Finish
from vcc.engine.runtime.sample import SamplingParams
from vcc.engine.runtime.scheduler import DecodeRun, LiveSequence, Scheduled, Scheduler

MOST_STEPS = 64
"""Steps of one run: each sequence holds blocks for that many tokens ahead."""


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One answered token.

    Attributes:
        request: index of its request.
        token: its id.
        step: its number in the answer, from 0.
        finish: why the answer ends here; None when it goes on.
        finite: False when it was chosen from logits without a largest one: NaN or infinity.
    """

    request: int
    token: int
    step: int
    finish: Finish | None
    finite: bool = True


@dataclass(frozen=True, slots=True)
class SampleRow:
    """How the next token of one sequence is chosen.

    Attributes:
        params: how it is chosen.
        request: number of the request in its run.
        step: number of the token in its answer, from 0.
        token: the one before, where it is known.
    """

    params: SamplingParams
    request: int
    step: int
    token: int = 0


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One sequence of a run of decode steps.

    Attributes:
        sample: how its tokens are chosen; `step` is the number of the first token to come.
        position: position of the last known token, which the first step computes.
        blocks: its row of the block table, blocks for all steps included.
        stops: token ids that end it.
        slot: of its adapter; -1 without one.
    """

    sample: SampleRow
    position: int
    blocks: Int32Array
    stops: frozenset[int]
    slot: int = -1


class Decoder(Protocol):
    """What runs decode steps one after another without the host."""

    def run(
        self, rows: Sequence[DecodeRow], steps: int, finish: int
    ) -> Generator[Int32Array, None, None]:
        """Words [rows] of each step as they come; see `engine/runtime/player/decode.py`."""


@runtime_checkable
class DeviceSampler(Protocol):
    """A step runner whose device chooses tokens; `samples` says whether it can."""

    @property
    def limits(self) -> StepLimits:
        """What one step may hold."""

    @property
    def samples(self) -> bool:
        """Whether the booted step holds the sampling kernels."""

    @property
    def decoding(self) -> Decoder:
        """The decode loop."""

    def sample(self, batch: StepBatch, rows: Sequence[SampleRow]) -> Int32Array:
        """Run one step; a word of each sequence, int32 [B]: see `told`."""


def told(word: int) -> tuple[int, bool]:
    """What a device's word for a token says: its id, and whether its logits had a largest one.

    Where they had none (`has_highest` of `sample.py`) the word is -1 - id; else it is the id.
    """
    return (word, True) if word >= 0 else (-1 - word, False)


def device_steps(runner: DeviceSampler, scheduler: Scheduler) -> Generator[TokenEvent, None, None]:
    """Run a scheduler to its end.

    Yields:
        One event a token, in the order they are computed.
    """
    builder = BatchBuilder(runner.limits)
    while scheduler.busy:
        run = scheduler.decode_run(MOST_STEPS)
        if run is not None:
            yield from _decoded(runner, scheduler, run)
            continue
        step = scheduler.schedule()
        batch = builder.build(chunks_of(runner, step))
        words = runner.sample(batch, [_row(part.sequence) for part in step])
        for part, word in zip(step, words, strict=True):
            event = _advance(scheduler, part, int(word))
            if event is not None:
                yield event


def _decoded(runner: DeviceSampler, scheduler: Scheduler, run: DecodeRun) -> Iterator[TokenEvent]:
    slots = slots_of(runner, run.sequences)
    rows = [
        DecodeRow(
            _row(one),
            one.length - 1,
            one.table.row.copy(),
            one.request.eos,
            slots[one.request.lora],
        )
        for one in run.sequences
    ]
    live = dict(enumerate(run.sequences))
    with closing(runner.decoding.run(rows, run.steps, run.finish)) as steps:
        for words in steps:
            for index, sequence in list(live.items()):
                (token, finite), number = told(int(words[index])), sequence.generated
                finish = scheduler.commit_rows(sequence, 1, token)
                if finish is not None:
                    del live[index]
                yield TokenEvent(sequence.request.index, token, number, finish, finite)


def _advance(scheduler: Scheduler, part: Scheduled, word: int) -> TokenEvent | None:
    if not part.samples:
        scheduler.commit(part, None)
        return None
    (token, finite), number = told(word), part.sequence.generated
    finish = scheduler.commit(part, token)
    return TokenEvent(part.sequence.request.index, token, number, finish, finite)


def _row(sequence: LiveSequence) -> SampleRow:
    request, last = sequence.request, int(sequence.tokens[sequence.length - 1])
    return SampleRow(request.params, request.index, sequence.generated, last)
