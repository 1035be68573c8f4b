"""A plain forward on the player: named inputs in, named outputs out, at every declared size.

The process needs no torch. A model in a directory brings its weights from there; a factory makes
its own, with torch on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vcc.cache.errors import IntegrityError, UsageError
from vcc.engine.arena import Arena
from vcc.engine.graphs.expr import evaluate_all
from vcc.engine.graphs.table.types import NodeTable, Role, TableTensor
from vcc.engine.runtime.by_size import chosen
from vcc.engine.runtime.player.gemms import Gemms
from vcc.engine.runtime.player.handle import Inputs, Mode, Parts, Read, Shape
from vcc.engine.runtime.player.host_values import (
    BF16,
    FP32,
    as_array,
    as_tensor,
    is_tensor,
    place,
    shape_of,
)
from vcc.engine.runtime.player.tables import StepTable
from vcc.engine.runtime.player.values import Bytes
from vcc.engine.runtime.turn import Turn


@dataclass(frozen=True, slots=True)
class Found:
    """An output: torch's name of its dtype, its shape, its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: Bytes


@dataclass(frozen=True, slots=True)
class ForwardTable:
    """A table with the player that has it, and the steps that are graphs."""

    step: StepTable
    table: NodeTable
    graphs: tuple[Shape, ...]

    @property
    def low(self) -> int:
        """Smallest first size."""
        return self.step.low

    @property
    def high(self) -> int:
        """Largest first size."""
        return self.step.high

    def of_role(self, role: Role) -> list[TableTensor]:
        """Its tensors of a role, in order."""
        return [one for one in self.table.tensors if one.role is role]


class PlayedForward:
    """Runs the tables of a forward over one memory; keeps it for as long as it lives.

    Args:
        tables: placed and filled; one for every size, or one a range of the only size.
        arena: their memory.
        gemms: matrix products of the site's store, on their way.

    Attributes:
        lacking: whether recording matrix products would make the next boot's calls faster.
    """

    def __init__(self, tables: Sequence[ForwardTable], arena: Arena, gemms: Gemms) -> None:
        self._tables, self._arena, self._turn = tuple(tables), arena, Turn()
        self._gemms, self.lacking = gemms, gemms.report.lacking

    def __call__(self, inputs: Mapping[str, Any], *, copy: bool = False) -> dict[str, Any]:
        """Run once.

        Args:
            inputs: for each declared input a dense tensor of the CPU or a numpy array, by name.
            copy: nothing is different without: what the device computed is read into new memory.

        Returns:
            `output_0`, `output_1`, … in the model's order: fresh tensors where an input is one,
            else arrays, bf16 widened to fp32.

        Raises:
            UsageError: an input is missing, unknown, or of another dtype or shape than declared;
                or another call is under way.
        """
        if any(map(is_tensor, inputs.values())):
            make, wide = as_tensor, False
        else:
            make, wide = as_array, True
        found = self.run(inputs, wide=wide)
        return {name: make(one.data, one.dtype, one.shape) for name, one in found.items()}

    def run(self, inputs: Mapping[str, Any], *, wide: bool = False) -> dict[str, Found]:
        """As a call, with outputs as bytes of their dtype, or `wide`: of one that numpy knows."""
        with self._turn.taken():
            shapes = {name: shape_of(name, value) for name, value in inputs.items()}
            sizes = sizes_of(self._tables[0].table, shapes)
            taken = self._table(sizes)
            self._step(taken, sizes, inputs)
            return dict(self._read(taken, sizes, wide))

    def _table(self, sizes: Mapping[str, int]) -> ForwardTable:
        """Checks the sizes against all tables: one range's are no wider than the others'."""
        if len(self._tables) == 1:
            check_ranges(self._tables[0].table, sizes)
            return self._tables[0]
        low, high = min(t.low for t in self._tables), max(t.high for t in self._tables)
        if not low <= sizes["T"] <= high:
            raise _out_of_range(self._tables[0].table, "T", sizes["T"], (low, high))
        return chosen(self._tables, sizes["T"])

    def _step(
        self, taken: ForwardTable, sizes: Mapping[str, int], inputs: Mapping[str, Any]
    ) -> None:
        handle, layout = taken.step.handle, taken.step.layout
        slot = handle.slot()
        for one in taken.of_role(Role.INPUT):
            start = layout.slots[slot] + layout.tensor(one.name).slot
            place(one.name, one.dtype, inputs[one.name], start)
        handle.step(shape_for(sizes), 1, slot, Inputs.ALL, Read.NOTHING)

    def _read(
        self, taken: ForwardTable, sizes: Mapping[str, int], wide: bool
    ) -> Iterator[tuple[str, Found]]:
        for index, one in enumerate(taken.of_role(Role.OUTPUT)):
            shape, lies = evaluate_all(one.shape, sizes), taken.step.layout.tensor(one.name)
            dtype = FP32 if wide and one.dtype == BF16 else one.dtype
            count = math.prod(shape)
            data = taken.step.handle.read_values(lies.address, one.dtype, count, dtype)
            yield f"output_{index}", Found(dtype, shape, data)

    def close(self) -> None:
        """Give all memory back; nothing else may be called afterwards."""
        self._gemms.close()
        for one in self._tables[::-1]:
            one.step.handle.close()
        self._arena.close()


def shape_for(sizes: Mapping[str, int]) -> Shape:
    """The step of these sizes as the player sees it: a graph, or kernel by kernel without one."""
    return Shape(Mode.FULL, sizes.get("T", 1), sizes.get("B", 1), Parts.NONE)


def graphs_of(table: NodeTable, captured: Sequence[int]) -> tuple[Shape, ...]:
    """The steps of a forward's table that become graphs.

    That is the only one where all sizes are fixed. Where one varies it is those of exactly these
    sizes: rows beside a smaller step's are not known to leave it alone, so nothing is padded.
    Where two vary there is none.

    Args:
        table: of the forward, for every size or for a range.
        captured: sizes that have graphs.
    """
    if not table.symbols:
        return (shape_for({}),)
    if len(table.symbols) > 1:
        return ()
    (symbol,) = table.symbols
    held = (size for size in captured if symbol.low <= size <= symbol.high)
    return tuple(shape_for({symbol.name: size}) for size in held)


def sizes_of(table: NodeTable, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The sizes that inputs have, by symbol.

    Args:
        table: of the forward.
        shapes: of its inputs.

    Raises:
        UsageError: inputs are missing or unknown, or a shape is not as declared.
    """
    inputs = {one.name: one for one in table.tensors if one.role is Role.INPUT}
    if inputs.keys() != shapes.keys():
        raise UsageError(
            "the inputs are not those of the module",
            f"missing: {', '.join(sorted(inputs.keys() - shapes.keys())) or 'none'}; "
            f"unknown: {', '.join(sorted(shapes.keys() - inputs.keys())) or 'none'}",
        )
    sizes: dict[str, int] = {}
    for name, one in inputs.items():
        if len(one.shape) != len(shapes[name]):
            raise UsageError(
                f"input {name} has {len(shapes[name])} dimensions", f"declared are {len(one.shape)}"
            )
        pairs = zip(one.shape, shapes[name], strict=True)
        for size, found in ((s, found) for s, found in pairs if isinstance(s, str)):
            sizes.setdefault(size, found)
    if missing := {symbol.name for symbol in table.symbols} - sizes.keys():
        raise IntegrityError(f"no input of the node table says how large {missing.pop()[:20]} is")
    for name, one in inputs.items():
        wanted = evaluate_all(one.shape, sizes)
        if wanted != shapes[name]:
            raise UsageError(
                f"input {name} has shape {list(shapes[name])}", f"it must be {list(wanted)}"
            )
    return sizes


def check_ranges(table: NodeTable, sizes: Mapping[str, int]) -> None:
    """Refuse sizes that were not declared.

    Raises:
        UsageError: with the input that has it, and the range.
    """
    for symbol in table.symbols:
        if not symbol.low <= sizes[symbol.name] <= symbol.high:
            ends = (symbol.low, symbol.high)
            raise _out_of_range(table, symbol.name, sizes[symbol.name], ends)


def _out_of_range(table: NodeTable, name: str, size: int, ends: tuple[int, int]) -> UsageError:
    source = next(one for one in table.tensors if one.role is Role.INPUT and name in one.shape)
    return UsageError(
        f"dimension {source.shape.index(name)} of {source.name} is {size}",
        f"the artifact serves {ends[0]} to {ends[1]}",
        "compile it with a wider range: --shape NAME=LOW-HIGHx…",
    )
