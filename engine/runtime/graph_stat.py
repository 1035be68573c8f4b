"""GraphStat: how steps were dispatched, step by step to a file and summed up in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from .dispatch import Dispatch


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step: raw and padded tokens, sequences without padding, plain mode, reason."""

    raw_tokens: int
    padded_tokens: int
    seqs: int
    mode: str
    reason: str

    @property
    def uniform(self) -> bool:
        """Whether every sequence had one token: pure decode."""
        return self.raw_tokens == self.seqs


class StepSink(Protocol):
    """Who is told of every step."""

    def write(self, record: StepRecord) -> None:
        """Take the next step."""


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """Totals over all recorded steps.

    Args:
        steps: number of steps.
        raw_tokens, padded_tokens: sums over steps.
        modes: (mode, steps), most frequent first.
        reasons: (mode, reason, steps), most frequent first.
    """

    steps: int
    raw_tokens: int
    padded_tokens: int
    modes: tuple[tuple[str, int], ...]
    reasons: tuple[tuple[str, str, int], ...]

    @property
    def padding(self) -> float:
        """Share of computed rows that are padding, 0 to 1."""
        spare = self.padded_tokens - self.raw_tokens
        return spare / self.padded_tokens if self.padded_tokens else 0.0


class GraphStat:
    """Counts dispatches; memory grows with distinct decisions, not with steps.

    Args:
        sink: is told of every step (`--trace-batches`); None: nobody.
    """

    def __init__(self, sink: StepSink | None = None) -> None:
        self._sink = sink
        self._counts: Counter[StepRecord] = Counter()

    def tell(self, sink: StepSink) -> None:
        """Tell `sink` of every step from now on."""
        self._sink = sink

    def record(self, raw_tokens: int, dispatch: Dispatch, seqs: int) -> None:
        """Count one step and tell the sink.

        Args:
            raw_tokens, seqs: tokens and sequences of the step, without padding.
            dispatch: what was decided for it.

        Raises:
            StorageError: the sink cannot be written.
        """
        padded, mode = dispatch.descriptor.tokens, dispatch.mode.value
        step = StepRecord(raw_tokens, padded, seqs, mode, dispatch.reason)
        self._counts[step] += 1
        if self._sink is not None:
            self._sink.write(step)

    def summary(self) -> GraphSummary:
        """Totals so far."""
        modes: Counter[str] = Counter()
        reasons: Counter[tuple[str, str]] = Counter()
        for step, count in self._counts.items():
            modes[step.mode] += count
            reasons[step.mode, step.reason] += count
        return GraphSummary(
            steps=sum(self._counts.values()),
            raw_tokens=sum(step.raw_tokens * n for step, n in self._counts.items()),
            padded_tokens=sum(step.padded_tokens * n for step, n in self._counts.items()),
            modes=tuple(modes.most_common()),
            reasons=tuple((mode, why, n) for (mode, why), n in reasons.most_common()),
        )
