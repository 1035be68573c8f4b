"""What a recording consists of, before anything runs: regions, tensors in them, descriptors. JSON.

Regions of recorded tables, by index: weights, KV cache, inputs and outputs, workspace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from vcc.engine.graphs.table.layout import DTYPES
from vcc.engine.graphs.table.types import RegionKind, Role, TableTensor

WEIGHTS, KV_CACHE, IO, WORKSPACE = range(4)
KINDS = (RegionKind.WEIGHTS, RegionKind.KV_CACHE, RegionKind.IO, RegionKind.WORKSPACE)
"""Kind of each region by its index."""

ALIGNMENT = 256

PREFIX = "table/recorded."

COMPARED = 16 << 20
"""Bytes of the KV cache that a proof compares at most, besides the output."""


@dataclass(frozen=True, slots=True, order=True)
class Descriptor:
    """A step that gets a graph: rows, sequences, and whether each has exactly one row."""

    tokens: int
    seqs: int
    uniform: bool

    @property
    def blob(self) -> str:
        """The name of its table in an artifact."""
        return PREFIX + self.file

    @property
    def file(self) -> str:
        """The beginning of its file names in a recording's folder."""
        return f"{self.tokens}.{self.seqs}.{int(self.uniform)}"

    @classmethod
    def of_blob(cls, name: str) -> Descriptor:
        """The inverse of `blob`.

        Raises:
            ValueError: another name.
        """
        tokens, seqs, uniform = name.removeprefix(PREFIX).split(".")
        return cls(int(tokens), int(seqs), bool(int(uniform)))


@dataclass(frozen=True, slots=True)
class Slot:
    """A named tensor in a region, at its largest size; dims name T and B where they vary.

    `shares` is the slot whose memory a tied weight uses.
    """

    name: str
    role: Role
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[str, ...] = ()
    offset: int = 0
    shares: str = ""

    @property
    def bytes(self) -> int:
        """At its largest size."""
        return prod(self.shape) * DTYPES[self.dtype]

    def shape_of(self, descriptor: Descriptor) -> tuple[int, ...]:
        """Its sizes in a step."""
        sizes = {"T": descriptor.tokens, "B": descriptor.seqs, "B1": descriptor.seqs + 1}
        named = self.dims + ("",) * (len(self.shape) - len(self.dims))
        return tuple(sizes.get(dim, size) for dim, size in zip(named, self.shape, strict=True))

    def tensor(self, region: int, descriptor: Descriptor) -> TableTensor:
        """As it stands in the table of a descriptor."""
        shape = self.shape_of(descriptor)
        return TableTensor(self.name, self.name, self.role, self.dtype, region, self.offset, shape)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording.

    Attributes:
        weights: parameters and constants, placed.
        cache: one slot a layer, placed; none for a model without a KV cache.
        io: inputs, then outputs, placed.
        descriptors: what is recorded, in this order.
        blocks: KV blocks; block_size tokens each.
        broken: descriptors that are recorded in parts, broken at the operators of `breaking`.
    """

    weights: tuple[Slot, ...]
    cache: tuple[Slot, ...]
    io: tuple[Slot, ...]
    descriptors: tuple[Descriptor, ...]
    blocks: int = 1
    block_size: int = 1
    broken: tuple[Descriptor, ...] = ()
    breaking: tuple[str, ...] = ()

    def breaks(self, descriptor: Descriptor) -> tuple[str, ...]:
        """The operators at which a step is broken; none for one that is a single graph."""
        return self.breaking if descriptor in self.broken else ()

    def slots(self) -> Sequence[tuple[int, Slot]]:
        """Every slot with its region."""
        groups = ((WEIGHTS, self.weights), (KV_CACHE, self.cache), (IO, self.io))
        return [(region, slot) for region, slots in groups for slot in slots]

    def sizes(self, workspace: int) -> tuple[int, int, int, int]:
        """Bytes of each region."""
        weights, cache, io = (
            max((slot.offset + slot.bytes for slot in slots), default=0)
            for slots in (self.weights, self.cache, self.io)
        )
        return weights, cache, io, workspace

    @property
    def compared_cache(self) -> tuple[tuple[int, int], ...]:
        """(Offset, bytes) in the KV cache of what a proof compares: where each layer's begins.

        Keys and values lie one behind the other in a layer, and the first sequence of a batch is
        in the first blocks of both.
        """
        halves = [
            (slot.offset + at, slot.bytes // 2)
            for slot in self.cache
            for at in (0, slot.bytes // 2)
        ]
        return tuple((at, min(size, COMPARED // len(halves))) for at, size in halves)

    def of_role(self, role: Role) -> tuple[Slot, ...]:
        """Inputs and outputs of one role."""
        return tuple(slot for slot in self.io if slot.role is role)

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Recording:
        """The inverse of `text`."""
        found = json.loads(text)
        weights, cache, io = (
            tuple(_slot(row) for row in found[name]) for name in ("weights", "cache", "io")
        )
        descriptors, broken = (
            tuple(Descriptor(**row) for row in found[name]) for name in ("descriptors", "broken")
        )
        numbers = (found["blocks"], found["block_size"])
        return cls(weights, cache, io, descriptors, *numbers, broken, tuple(found["breaking"]))


def placed(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """Slots one after another; tied ones where the slot they share lies."""
    done: dict[str, Slot] = {}
    at = 0
    for slot in slots:
        if slot.shares:
            done[slot.name] = replace(slot, offset=done[slot.shares].offset)
            continue
        done[slot.name] = replace(slot, offset=at)
        at += -(-slot.bytes // ALIGNMENT) * ALIGNMENT
    return tuple(done.values())


def _slot(row: Mapping[str, Any]) -> Slot:
    lists = {name: tuple(row[name]) for name in ("shape", "dims")}
    return Slot(**{**row, **lists, "role": Role(row["role"])})
