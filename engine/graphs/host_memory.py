"""HostMemory: a table's regions as host memory, poisoned, with gaps, every address accountable."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import Exit, VccError
from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.table.layout import DTYPES
from vcc.engine.graphs.table.types import NodeTable, RegionKind, TableTensor

Bytes = npt.NDArray[np.uint8]

GAP = 64 << 10
"""Bytes between regions that nothing may touch."""

POISON = 0xFF
"""Every byte that was never written: NaN in all float types, -1 in integers."""


PERMANENT = (RegionKind.WEIGHTS, RegionKind.KV_CACHE)
"""Regions that outlive a step."""


class OutOfRegion(VccError):
    """A node touched memory that is none of its regions."""

    exit, id = Exit.NEGATIVE, "OUT_OF_REGION"


@dataclass(frozen=True, slots=True)
class Reach:
    """What a node may touch: regions by index that it was given a pointer to, with its name."""

    node: str
    reads: frozenset[int]
    writes: frozenset[int]


class HostMemory:
    """The regions of a table in one block with gaps, poisoned.

    Args:
        table: the table.
        sizes: the largest values of its symbols that will be used; also those of the first step.
    """

    def __init__(self, table: NodeTable, sizes: Mapping[str, int]) -> None:
        self._table, self.sizes = table, dict(sizes)
        lengths = [evaluate(region.size, sizes) for region in table.regions]
        starts, end = [], GAP
        for region, length in zip(table.regions, lengths, strict=True):
            end += -end % max(region.alignment, 256)
            starts.append(end)
            end += length + GAP
        self._block: Bytes = np.full(end + 4096, POISON, np.uint8)
        base = int(self._block.ctypes.data)
        shift = -base % 4096
        self._starts = np.array([start + shift for start in starts], np.int64)
        self._lengths = np.array(lengths, np.int64)
        self._base = base

    def begin(self, sizes: Mapping[str, int], keep: Collection[RegionKind] = PERMANENT) -> None:
        """Start a step of these sizes; what regions hold is forgotten, but for those of `keep`."""
        self.sizes = dict(sizes)
        lengths = [evaluate(region.size, sizes) for region in self._table.regions]
        self._lengths = np.array(lengths, np.int64)
        self.poison([kind for kind in RegionKind if kind not in keep])

    @property
    def block(self) -> Bytes:
        """All memory; regions begin where `place` says."""
        return self._block

    def place(self, region: int, offset: int = 0) -> int:
        """Index into `block` of a byte of a region."""
        return int(self._starts[region]) + offset

    def region(self, index: int) -> Bytes:
        """The bytes of a region."""
        start = self.place(index)
        return self._block[start : start + int(self._lengths[index])]

    def poison(self, kinds: Collection[RegionKind]) -> None:
        """Forget what regions of these kinds hold."""
        for index, region in enumerate(self._table.regions):
            if region.kind in kinds:
                self.region(index)[:] = POISON

    def tensor(self, tensor: TableTensor) -> Bytes:
        """The bytes of a named tensor at these sizes."""
        return self.view(tensor.region, tensor.offset, tensor.dtype, tensor.shape)

    def view(self, region: int, offset: Any, dtype: str, shape: Sequence[Any]) -> Bytes:
        """The bytes of a dense tensor; sizes are expressions.

        Raises:
            OutOfRegion: it ends outside its region.
        """
        start = evaluate(offset, self.sizes)
        length = prod(evaluate_all(shape, self.sizes)) * DTYPES[dtype]
        if not 0 <= start <= start + length <= self._lengths[region]:
            raise OutOfRegion(
                f"{length} bytes at {start} are outside region {region}",
                f"{self._table.regions[region].kind.name} has {self._lengths[region]} bytes",
            )
        at = self.place(region, start)
        return self._block[at : at + length]

    def check(self, addresses: Any, mask: Any, item: int, write: bool, reach: Reach) -> None:
        """Refuse an access outside the regions of a node.

        Args:
            addresses: of the elements, uint64.
            mask: which of them are touched; None: all.
            item: bytes of an element.
            write: whether they are written.
            reach: what the node may touch.

        Raises:
            OutOfRegion: naming the node and the nearest region.
        """
        at = np.asarray(addresses).reshape(-1).astype(np.int64) - self._base
        if mask is not None:
            held = np.broadcast_to(np.asarray(mask, bool), np.shape(addresses)).reshape(-1)
            at = at[held]
        if not len(at):
            return
        allowed = np.array(sorted(reach.writes if write else reach.reads), np.int64)
        good = np.zeros(len(at), bool)
        for region in allowed:
            start = self._starts[region]
            good |= (at >= start) & (at + item <= start + self._lengths[region])
        if not good.all():
            raise self._strayed(int(at[~good][0]), write, reach)

    def _strayed(self, at: int, write: bool, reach: Reach) -> OutOfRegion:
        """The error for byte `at` of the block, told from the nearest region."""
        ends = self._starts + self._lengths
        far = np.maximum(np.maximum(self._starts - at, at + 1 - ends), 0)
        near = int(far.argmin())
        kind, offset = self._table.regions[near].kind.name, at - int(self._starts[near])
        why = f"the region has {self._lengths[near]} bytes"
        if not far[near]:
            why = "the node has no pointer into that region that allows it"
        verb = "writes" if write else "reads"
        return OutOfRegion(f"{reach.node} {verb} byte {offset} of {kind}", why)
