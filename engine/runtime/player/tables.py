"""Node tables of a step on the player: one for every size, or one a range, over one memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.blob_names import STEP
from vcc.engine.runtime.by_size import chosen
from vcc.engine.runtime.player.handle import PlayerHandle, Shape
from vcc.engine.runtime.player.layout import Layout
from vcc.engine.runtime.player.step_check import check_range, check_shared

if TYPE_CHECKING:
    from vcc.cache.manifest import Manifest
    from vcc.engine.runtime.batch import StepLimits
    from vcc.engine.runtime.inputs import StepInputs

EVERY = (1, 1 << 62)
"""The range of an artifact's only table: what it serves stands in its symbols."""


@dataclass(frozen=True, slots=True)
class OpenTable:
    """The player of the table for `low` to `high` tokens, before it has memory."""

    low: int
    high: int
    handle: PlayerHandle


@dataclass(frozen=True, slots=True)
class StepTable(OpenTable):
    """As `OpenTable`, placed: `layout` is where its tensors lie."""

    layout: Layout

    def writers(self, limits: StepLimits) -> tuple[StepInputs, ...]:
        """Who writes a batch into each of its input slots."""
        from vcc.engine.runtime.inputs import StepInputs  # a boot imports this beside the upload

        return tuple(
            StepInputs(SlotArrays(self.layout, index), limits)
            for index in range(len(self.layout.slots))
        )


@dataclass(frozen=True, slots=True)
class SlotArrays:
    """An input slot as `StepInputs` sees it."""

    layout: Layout
    index: int

    def array(self, name: str) -> npt.NDArray[Any]:
        """An input's memory, flat."""
        return self.layout.array(self.index, name)


def table_ranges(manifest: Manifest) -> dict[str, tuple[int, int]]:
    """The step tables of an artifact with their ranges; the first one's memory serves all.

    Raises:
        IntegrityError: there is none, or the ranges are refused (`range_blobs`).
    """
    if STEP in manifest.blobs and not any(name.startswith(f"{STEP}/") for name in manifest.blobs):
        return {STEP: EVERY}
    from vcc.engine.graphs.range_blobs import range_blobs  # where there are ranges only

    ranges = range_blobs(manifest, STEP, "node table")
    if not ranges:
        raise IntegrityError("the artifact has no node table", f"there is no blob {STEP}")
    widest = max(ranges, key=lambda name: (ranges[name][1], -ranges[name][0]))
    return {widest: ranges[widest], **ranges}


def open_tables(
    arena: int, ranges: Mapping[str, tuple[int, int]], blobs: Mapping[str, bytes]
) -> Iterable[OpenTable]:
    """Players of the tables, one after another, the first of which the others lie beside.

    Raises:
        IntegrityError: a table is refused.
    """
    first: PlayerHandle | None = None
    for name, (low, high) in ranges.items():
        data = blobs[name]
        handle = PlayerHandle(arena, data) if first is None else first.beside(data)
        first = first or handle
        yield OpenTable(low, high, handle)


def place_tables(
    tables: Sequence[OpenTable], blocks: tuple[int, int], slots: int, ring: int
) -> tuple[StepTable, ...]:
    """Give the tables their memory, the first one first.

    Args:
        tables: as `open_tables` gave them.
        blocks: KV blocks with addresses, and those of them with memory.
        slots, ring: of each player, see csrc/player/abi.h.

    Raises:
        IntegrityError: tables of different memory.
        DeviceError: out of memory.
    """
    placed = []
    for one in tables:
        one.handle.place(*blocks, slots, ring)
        layout = Layout.read(one.handle.describe())
        placed.append(StepTable(one.low, one.high, one.handle, layout))
    for other in placed[1:]:
        check_shared(placed[0].layout, other.layout)
    return tuple(placed)


def check_tables(tables: Sequence[StepTable], limits: StepLimits) -> None:
    """Refuse tables that are not the steps that their names say, or do not hold every step.

    Raises:
        IntegrityError: with the size or the tensor that is wrong.
    """
    if len(tables) == 1:
        check_range(tables[0].layout, limits, (1, limits.max_tokens))
        return
    low, high = min(one.low for one in tables), max(one.high for one in tables)
    if low > 1 or high < limits.max_tokens:
        raise IntegrityError(
            f"the artifact has no node table for some of 1 to {limits.max_tokens} tokens",
            f"its ranges go from {low} to {high}",
            "rebuild it: vcc compile",
        )
    for one in tables:
        check_range(one.layout, limits, (one.low, one.high), exact=True)


def by_table(tables: Sequence[OpenTable], shapes: Iterable[Shape]) -> list[list[Shape]]:
    """Steps by the table that runs them, in the order of the tables."""
    found: dict[int, list[Shape]] = {id(one): [] for one in tables}
    for shape in shapes:
        found[id(chosen(tables, shape.tokens))].append(shape)
    return list(found.values())


def build_graphs(
    tables: Sequence[OpenTable], shapes: Sequence[Shape], hot: int, threads: int
) -> None:
    """Build graphs, those of the hot steps before this returns, the others by threads.

    Args:
        tables: placed.
        shapes: what to build; the first `hot` come first.
        hot: how many.
        threads: of the only table; of several each has one.
    """
    lists = by_table(tables, shapes)
    first = set(shapes[:hot])
    counts = [sum(shape in first for shape in some) for some in lists]
    each = threads if len(tables) == 1 else min(threads, 1)
    order = sorted(range(len(tables)), key=lambda index: -counts[index])
    for index in order:  # what is hot does not wait for threads that build the rest
        if lists[index]:
            tables[index].handle.build(lists[index], counts[index], each)
