"""Layout: where a player's tensors lie, with numpy views of its pinned slots and token ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.table.layout import DTYPE_NAMES, DTYPES
from vcc.engine.native import memory_at
from vcc.engine.runtime.kv import Int32Array

NUMPY: Mapping[str, str] = {
    "float64": "f8",
    "float32": "f4",
    "float16": "f2",
    "int64": "i8",
    "int32": "i4",
    "int16": "i2",
    "int8": "i1",
    "uint8": "u1",
    "bool": "?",
}
"""Dtypes that numpy knows."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the step on the device, at its largest size.

    Attributes:
        name, target: as in the node table.
        role: "input", "output", "weight", "constant", "cache" or "state".
        dtype: torch's name of it.
        shape: largest sizes.
        address: on the device.
        slot: its first byte in an input slot; -1 when the host does not write it.
    """

    name: str
    target: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    address: int
    slot: int

    @property
    def bytes(self) -> int:
        """At its largest size."""
        return prod(self.shape) * DTYPES[self.dtype]

    def rows_at(self, address: int, rows: int) -> npt.NDArray[np.floating[Any]]:
        """The first rows of a copy of it in the host's memory, [rows, shape[1]].

        Args:
            address: of the copy; the array is a view of it, of bfloat16 a copy in float32.
            rows: how many.
        """
        width = self.shape[1]
        data = memory_at(address, rows * width * DTYPES[self.dtype])
        if self.dtype == "bfloat16":
            halves = np.frombuffer(data, np.uint16).astype(np.uint32)
            return (halves << 16).view(np.float32).reshape(rows, width)
        return np.frombuffer(data, NUMPY[self.dtype]).reshape(rows, width)


@dataclass(frozen=True, slots=True)
class WeightPlace:
    """Where weights and constants are to be copied: address and bytes of all, and each tensor."""

    address: int
    bytes: int
    tensors: tuple[Tensor, ...]

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> WeightPlace:
        """From what `PlayerHandle.place_weights` says."""
        return cls(found["address"], found["bytes"], tuple(map(_tensor, found["tensors"])))


@dataclass(frozen=True, slots=True)
class Layout:
    """What `PlayerHandle.describe` says, as values.

    Attributes:
        tensors: by name.
        weights: address and bytes of the WEIGHTS region.
        symbols: range of each size.
        segments: pieces, ops, heads and tails of the table.
        slots: address of each input slot; all are `slot_bytes` long.
        ring: address, rows and columns of the token ring; no rows where the table does not sample.
    """

    tensors: Mapping[str, Tensor]
    weights: tuple[int, int]
    symbols: Mapping[str, tuple[int, int]]
    segments: tuple[int, int, int, int]
    slots: tuple[int, ...]
    slot_bytes: int
    ring: tuple[int, int, int]
    _arrays: dict[tuple[int, str], npt.NDArray[Any]] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Layout:
        """From the player's own description."""
        tensors = [_tensor(one) for one in found["tensors"]]
        homes = [(r["address"], r["bytes"]) for r in found["regions"] if r["kind"] == 0]
        return cls(
            tensors={one.name: one for one in tensors},
            weights=homes[0] if homes else (0, 0),
            symbols={name: (low, high) for name, (low, high) in found["symbols"].items()},
            segments=tuple(found["segments"]),
            slots=tuple(found["slots"]),
            slot_bytes=found["slot_bytes"],
            ring=(found["ring"], found["ring_steps"], found["ring_width"]),
        )

    @property
    def samples(self) -> bool:
        """Whether the device can sample and decode by itself."""
        return all(self.segments[2:]) and bool(self.ring[1])

    @property
    def weight_place(self) -> WeightPlace:
        """Where weights and constants lie."""
        roles = ("weight", "constant")
        tensors = tuple(one for one in self.tensors.values() if one.role in roles)
        return WeightPlace(*self.weights, tensors)

    def tensor(self, name: str) -> Tensor:
        """A tensor by name.

        Raises:
            IntegrityError: the table has none of this name.
        """
        if name not in self.tensors:
            raise IntegrityError(f"the node table has no tensor called {name[:60]}")
        return self.tensors[name]

    def array(self, slot: int, name: str) -> npt.NDArray[Any]:
        """An input's memory in a slot at its largest size, flat; made once."""
        made = self._arrays.get((slot, name))
        if made is None:
            tensor = self.tensor(name)
            if tensor.slot < 0:
                raise IntegrityError(f"{name[:60]} is no input of the node table")
            view = memory_at(self.slots[slot] + tensor.slot, tensor.bytes)
            made = np.frombuffer(view, dtype=NUMPY[tensor.dtype])
            self._arrays[slot, name] = made
        return made

    def tokens(self) -> Int32Array:
        """The token ring [steps, sequences]."""
        address, steps, width = self.ring
        flat = np.frombuffer(memory_at(address, 4 * steps * width), dtype=np.int32)
        return flat.reshape(steps, width)


def _tensor(one: Mapping[str, Any]) -> Tensor:
    return Tensor(
        name=one["name"],
        target=one["target"],
        role=one["role"],
        dtype=DTYPE_NAMES[one["dtype"]],
        shape=tuple(one["shape"]),
        address=one["address"],
        slot=one.get("slot", -1),
    )
