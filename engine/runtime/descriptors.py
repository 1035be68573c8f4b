"""The nouns of dispatching: descriptors, attention hints, decisions, LoRA cases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vcc.engine.config.modes import GraphMode

NO_LORAS = (0,)


@dataclass(frozen=True, slots=True)
class BatchDescriptor:
    """The shape that identifies a graph.

    Args:
        tokens: rows of the step, padding included.
        reqs: sequences of the step, padding included; None where the graph does not depend on it.
        uniform: True when every sequence has the decode query length.
        loras: LoRA case of the graph (0: none active).
    """

    tokens: int
    reqs: int | None = None
    uniform: bool = False
    loras: int = 0


@dataclass(frozen=True, slots=True)
class AttentionHints:
    """What the attention metadata of a step says; `longest_sequence` is in tokens."""

    cascade: bool = False
    shared_prefix: bool = False
    longest_sequence: int = 0


NO_HINTS = AttentionHints()


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The decision for one step: a plain mode, the padded descriptor, and why."""

    mode: GraphMode
    descriptor: BatchDescriptor
    reason: str


def count_loras(slots: Iterable[int]) -> int:
    """Adapters of a step by its rows' slots; beside some, rows without one count as one more.

    >>> count_loras([0, 2, -1, 2]), count_loras([1, 1]), count_loras([-1])
    (3, 1, 0)
    """
    found = set(slots)
    return 0 if max(found, default=-1) < 0 else len(found)


def lora_counts(max_loras: int, *, specialise: bool) -> tuple[int, ...]:
    """Counts of active LoRAs with graphs of their own.

    With `specialise`: 0, the powers of two up to `max_loras`, and `max_loras` + 1 (rows without
    a LoRA count as one more). Without: one case that serves every count.

    >>> lora_counts(4, specialise=True)
    (0, 1, 2, 4, 5)
    """
    if max_loras < 1:
        return NO_LORAS
    if not specialise:
        return (max_loras + 1,)
    powers = [1 << bit for bit in range(max_loras.bit_length())]
    return (0, *powers, max_loras + 1)
