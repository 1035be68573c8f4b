"""All memory of a step, allocated once: inputs in one packed block, buffers in one workspace."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy.typing as npt
import torch

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.base import Sizes
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.graphs.expr import evaluate_all, most
from vcc.engine.graphs.packing import ALIGNMENT, pack
from vcc.engine.graphs.program import Program, Value


class Room:
    """The two blocks of a step; programs of several ranges share them, as one runs at a time."""

    def __init__(self) -> None:
        self.block = torch.zeros(0, dtype=torch.uint8)
        self.workspace = torch.empty(0, dtype=torch.uint8)

    def reserve(self, block: int, workspace: int) -> None:
        """Have at least so many bytes; only before anything is a view of them."""
        if block > self.block.numel():
            self.block = torch.zeros(block, dtype=torch.uint8)
        if workspace > self.workspace.numel():
            self.workspace = torch.empty(workspace, dtype=torch.uint8)


class StepMemory:
    """Tensors of a program at any declared sizes, as views of memory that never moves.

    Args:
        program: the step.
        given: tensors that exist already, by value name: weights, constants, KV caches.
        highest: largest size of every symbol; equal for all programs that share a room, so that
            inputs lie at the same places.
        room: where it all lies; None: in memory of its own.
    """

    def __init__(
        self,
        program: Program,
        given: Mapping[str, torch.Tensor],
        highest: Sizes,
        room: Room | None = None,
    ) -> None:
        self._given = given
        self._values = program.by_name()
        _check_given(self._values, given)
        sizes = {v.name: _bytes(v, highest) for v in program.values if v.name not in given}
        inputs = [v.name for v in program.of_role("input") if v.name not in given]
        placement = pack(program, {n: s for n, s in sizes.items() if n not in inputs})
        starts, end = _in_a_row(inputs, sizes)
        self._offsets = {**placement.offsets, **starts}
        self._room = room or Room()
        self._room.reserve(end, placement.size)
        self._inputs = frozenset(inputs)
        self._sizes = sizes

    def view(self, name: str, sizes: Sizes) -> torch.Tensor:
        """The tensor of a value at the given sizes; equal addresses at all sizes."""
        if name in self._given:
            return self._given[name]
        value = self._values[name]
        shape = evaluate_all(value.shape, sizes)
        count = prod(shape) * DTYPES[value.dtype].itemsize
        start = self._offsets[name]
        return self._home(name)[start : start + count].view(DTYPES[value.dtype]).view(shape)

    def array(self, name: str) -> npt.NDArray[Any]:
        """An input's memory at its largest size, flat, for the host to write."""
        start, value = self._offsets[name], self._values[name]
        flat = self._room.block[start : start + self._sizes[name]]
        return flat.view(DTYPES[value.dtype]).numpy()

    @property
    def workspace_bytes(self) -> int:
        """Size of the packed workspace."""
        return self._room.workspace.numel()

    def _home(self, name: str) -> torch.Tensor:
        return self._room.block if name in self._inputs else self._room.workspace


def _bytes(value: Value, highest: Sizes) -> int:
    return prod(max(0, most(size, highest)) for size in value.shape) * DTYPES[value.dtype].itemsize


def _in_a_row(names: list[str], sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    starts, at = {}, 0
    for name in names:
        starts[name] = at
        at += -(-sizes[name] // ALIGNMENT) * ALIGNMENT
    return starts, at


def _check_given(values: Mapping[str, Value], given: Mapping[str, torch.Tensor]) -> None:
    """Weights, constants and caches once, when bound: compiled code checks nothing itself."""
    for value in values.values():
        if value.role in ("weight", "constant") and value.name not in given:
            raise IntegrityError(f"{value.role} {value.target} is missing")
    for name, tensor in given.items():
        if name not in values:
            continue
        value = values[name]
        static = [None if isinstance(size, (str, list)) else size for size in value.shape]
        fits = len(static) == tensor.dim() and all(
            want is None or want == have for want, have in zip(static, tensor.shape, strict=True)
        )
        if not fits or DTYPES[value.dtype] != tensor.dtype or not tensor.is_contiguous():
            raise IntegrityError(
                f"{value.target} does not fit the compiled code",
                f"it is {tensor.dtype} {list(tensor.shape)} with strides {tensor.stride()}, the "
                f"code takes {value.dtype} {value.shape}, dense",
                "the weights are not those that the artifact was built for",
            )
