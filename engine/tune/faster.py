"""The faster of two choices of cuBLASLt for a product: with much workspace, and with little.

The library guesses which algorithm is best among those that fit into a workspace. For some products
one of less memory is faster than the one it takes where it may take more, for others it is not
(docs/decisions/0026-what-cublaslt-is-asked.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vcc.engine.tune.bench import time_entry
from vcc.engine.tune.record import operand_sizes
from vcc.engine.tune.store import GemmEntry

LARGEST = 1 << 29
"""Bytes of operands of a product that is timed at most; of a larger one the first choice stays."""

GAIN = 0.97
"""Share of the first choice's time that the other takes at most, to be kept: less is noise."""


def faster(entries: Sequence[GemmEntry], others: Iterable[GemmEntry]) -> tuple[GemmEntry, ...]:
    """The entries, with those of `others` that are faster in their places.

    Args:
        entries: of one recording, made in this process, on the current device.
        others: of some of the same products.

    Raises:
        DeviceError: out of memory, or a launch failed.
    """
    small = {one.shape: one for one in others}
    return tuple(_faster(one, small.get(one.shape)) for one in entries)


def _faster(first: GemmEntry, other: GemmEntry | None) -> GemmEntry:
    if other is None or sum(operand_sizes(first.shape, first.workspace)) > LARGEST:
        return first
    return other if time_entry(other) < GAIN * time_entry(first) else first
