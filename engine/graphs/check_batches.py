"""Steps to check a table with: real sequences over a paged cache, padded to declared sizes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import UsageError

Array = npt.NDArray[np.int32]

SEQUENCES = 3
"""Sequences that are decoded together, where the limits allow it."""

LATER = 6
"""Tokens that a sequence gets after its prompt, the loop's included."""

SHORTEST = 8
"""Tokens of a sequence below which there is nothing to show."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may hold: tokens, sequences, blocks of a sequence with their tokens, adapters."""

    max_tokens: int
    max_seqs: int
    block_size: int
    blocks_per_seq: int
    loras: int = 0

    @property
    def context(self) -> int:
        """Longest sequence."""
        return self.block_size * self.blocks_per_seq


@dataclass(frozen=True, slots=True)
class CheckStep:
    """One step: new tokens of each sequence, and its sizes with padding.

    Attributes:
        name: for people.
        work: sequence -> how many new tokens.
        tokens, seqs: T and B.
    """

    name: str
    work: Mapping[int, int]
    tokens: int
    seqs: int

    @property
    def decode(self) -> bool:
        """Whether the graph of pure decode may run it."""
        return self.tokens == self.seqs and set(self.work.values()) == {1}


def schedule(limits: Limits, asked: Sequence[int] = ()) -> tuple[CheckStep, ...]:
    """Steps that show what sizes can go wrong: one token, padding, chunks, mixed batches, decode.

    Args:
        limits: of the table.
        asked: token counts to run beside them, each as a mixed step of exactly that size.

    Raises:
        UsageError: an asked count that no step can have, or sequences too short for a few steps.
    """
    if limits.context < SHORTEST:
        raise UsageError(
            f"sequences of {limits.context} tokens are too short to check",
            "prefill and decode need some room",
            f"--max-model-len {SHORTEST} or more",
        )
    many = min(SEQUENCES, limits.max_seqs, limits.max_tokens)
    most = min(limits.max_tokens, limits.context - LATER)
    long = min(most, 2 * limits.block_size + 3)
    steps = [CheckStep("one token", {0: 1}, 1, 1)]
    padded = min(limits.max_tokens, long + 3)
    steps.append(CheckStep("prefill, padded", {1: long}, padded, min(limits.max_seqs, 3)))
    if many > 1:
        rest = max(1, min(5, most - 2))
        work = {0: 1, 2: rest} if many == 2 or limits.max_tokens < 4 else {0: 1, 2: rest, 1: 1}
        work = _fitting(work, limits)
        steps.append(CheckStep("mixed", work, sum(work.values()), len(work)))
        together = dict.fromkeys(sorted(work), 1)
        wide = min(limits.max_tokens, limits.max_seqs, len(together) + 1)
        steps.append(CheckStep("decode, padded", together, wide, wide))
    return (*steps, *(_asked(count, index, limits) for index, count in enumerate(asked)))


def in_ranges(
    steps: Sequence[CheckStep], ranges: Sequence[tuple[int, int]], limits: Limits
) -> tuple[CheckStep, ...]:
    """More steps, so that each range of tokens has some: its smallest, and decode of that size.

    Args:
        steps: of `schedule`.
        ranges: fewest and most tokens of each, in the order of the tables.
        limits: of all of them.
    """
    found = list(steps)
    for low in (low for low, _ in ranges if low > 1):
        found.append(_asked(low, len(found), limits))
        sequence, count = next(iter(found[-1].work.items()))
        if low <= limits.max_seqs and count < limits.context:
            found.append(CheckStep(f"decode, padded to {low}", {sequence: 1}, low, low))
    return tuple(found)


def _fitting(work: Mapping[int, int], limits: Limits) -> dict[int, int]:
    """As many of these sequences as a step holds."""
    found: dict[int, int] = {}
    for sequence, count in work.items():
        room = limits.max_tokens - sum(found.values())
        if room > 0 and len(found) < limits.max_seqs:
            found[sequence] = min(count, room)
    return found


def _asked(count: int, index: int, limits: Limits) -> CheckStep:
    """Fresh sequences with `count` tokens in all: prompts as long as possible, then single ones."""
    if not 1 <= count <= limits.max_tokens:
        raise UsageError(
            f"no step has {count} tokens", f"the table is for 1 to {limits.max_tokens}"
        )
    first, work, left = 1000 * (index + 1), dict[int, int](), count
    for number in range(limits.max_seqs):
        if left:
            work[first + number] = min(left, limits.context)
            left -= work[first + number]
    if left:
        held = limits.max_seqs * limits.context
        raise UsageError(f"no step has {count} new tokens", f"all sequences together hold {held}")
    return CheckStep(f"{count} tokens", work, count, len(work))


def blocks_for(steps: Sequence[CheckStep], limits: Limits) -> int:
    """KV blocks that these steps need, with one to spare."""
    totals: dict[int, int] = {}
    for step in steps:
        for sequence, count in step.work.items():
            totals[sequence] = totals.get(sequence, 0) + count
    # The loop adds two tokens to a sequence, and tables have room for two more.
    return sum(-(-(total + 4) // limits.block_size) for total in totals.values()) + 1


@dataclass(slots=True)
class Sequences:
    """Block tables and lengths of the sequences of a check; blocks are handed out at random."""

    limits: Limits
    blocks: int
    vocab: int
    free: list[int] = field(default_factory=list)
    tables: dict[int, list[int]] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = list(range(self.blocks))
        random.Random(1).shuffle(self.free)

    def inputs(
        self, step: CheckStep, given: Mapping[int, Sequence[int]] | None = None, ahead: int = 0
    ) -> dict[str, Array]:
        """The int32 inputs of the next step.

        Args:
            step: what is new.
            given: the tokens themselves; drawn by sequence and position when left out.
            ahead: tokens beyond this step that the block tables have room for.
        """
        ids, places, slots, starts = list[int](), list[int](), list[int](), [0]
        for sequence, count in step.work.items():
            begin = self._grow(sequence, count, ahead)
            span = range(begin, begin + count)
            ids += (given or {}).get(sequence) or [self._draw(sequence, at) for at in span]
            places += span
            slots += [self._slot(sequence, at) for at in span]
            starts.append(len(ids))
        empty = [0] * self.limits.blocks_per_seq
        table = [self._row(s) for s in step.work] + [empty] * (step.seqs - len(step.work))
        return {
            "input_ids": _padded(ids, step.tokens, 0),
            "positions": _padded(places, step.tokens, 0),
            "slot_mapping": _padded(slots, step.tokens, -1),
            "block_table": np.array(table, np.int32),
            "seq_lens": _padded([self.lengths[s] for s in step.work], step.seqs, 0),
            "query_start": _padded(starts, step.seqs + 1, len(ids)),
            "logits_index": _padded([end - 1 for end in starts[1:]], step.seqs, 0),
            **self._loras(step),
        }

    def _loras(self, step: CheckStep) -> dict[str, Array]:
        """Sequences have the slots in turn, and every so many none."""
        if not self.limits.loras:
            return {}
        slots = [
            one % (self.limits.loras + 1) - 1 for one, n in step.work.items() for _ in range(n)
        ]
        return {"lora_slot": _padded(slots, step.tokens, -1)}

    def _draw(self, sequence: int, position: int) -> int:
        return random.Random(sequence * 100_003 + position).randrange(self.vocab)

    def _grow(self, sequence: int, count: int, ahead: int) -> int:
        begin = self.lengths.get(sequence, 0)
        self.lengths[sequence] = begin + count
        held = self.tables.setdefault(sequence, [])
        while len(held) * self.limits.block_size < begin + count + ahead:
            held.append(self.free.pop())
        return begin

    def _slot(self, sequence: int, position: int) -> int:
        block, offset = divmod(position, self.limits.block_size)
        return self.tables[sequence][block] * self.limits.block_size + offset

    def _row(self, sequence: int) -> list[int]:
        held = self.tables[sequence]
        return held + [0] * (self.limits.blocks_per_seq - len(held))


def _padded(values: Sequence[int], size: int, filler: int) -> Array:
    return np.array([*values, *[filler] * (size - len(values))], np.int32)
