"""Weights onto a device without torch: readers of the page cache, a pinned ring, several streams.

The work is done by csrc/player/weights.cpp; here the plan is made from a table's tensors, the
bindings and the checkpoint's headers, and handed over.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcc.cache.errors import IntegrityError, ModelError, UsageError
from vcc.engine.models.bindings import EMBED, HEAD
from vcc.engine.models.expressions import Binding, Tied
from vcc.engine.models.tensor_info import TensorInfo
from vcc.engine.native import functions
from vcc.engine.runtime.player.weight_plan import Home, WeightPlan, plan_weights

if TYPE_CHECKING:
    from vcc.engine.graphs.table.types import NodeTable

__all__ = ["READERS", "SLOT_BYTES", "WeightReport", "homes_of", "load", "plan_weights"]

WEIGHTS = 0
"""The kind of their region."""

READERS, SLOT_BYTES = 8, 2 << 20
"""Reader threads at most, and bytes of one of the two pinned slots that each has."""

_C = functions(
    {
        "vcc_weights_load": (
            "ptr ptr u64 bytes u64 bytes u32 bytes u64 bytes u64 u32 u64 -> u64 f64 f64 u64"
        )
    }
)


@dataclass(frozen=True, slots=True)
class WeightReport:
    """What an upload did.

    Attributes:
        bytes: that reached the device.
        seconds: from opening the files to the last byte's arrival.
        first: seconds before the first copy was sent: threads, pinning, the first read.
        ring: bytes of host memory that were pinned meanwhile.
    """

    bytes: int
    seconds: float
    first: float
    ring: int

    @property
    def gb_per_second(self) -> float:
        """10**9 bytes a second."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    def as_dict(self) -> dict[str, float]:
        """For ledgers and JSON."""
        return {
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
            "first_seconds": round(self.first, 6),
            "ring_bytes": self.ring,
            "gb_per_second": round(self.gb_per_second, 3),
        }


def homes_of(table: NodeTable) -> tuple[tuple[Home, ...], int]:
    """What a table's WEIGHTS region holds, and its size in bytes.

    Raises:
        IntegrityError: a weight lies elsewhere, or its place or shape is not a number.
    """
    from vcc.engine.graphs.table.types import RegionKind, Role

    roles = {Role.WEIGHT: False, Role.CONSTANT: True}
    found = tuple(
        Home(
            tensor.target,
            tensor.dtype,
            tuple(_number(size) for size in tensor.shape),
            _number(tensor.offset),
            roles[tensor.role],
        )
        for tensor in table.tensors
        if tensor.role in roles and _in_weights(table.regions[tensor.region].kind)
    )
    sizes = (region.size for region in table.regions if region.kind is RegionKind.WEIGHTS)
    return found, sum(_number(size) for size in sizes)


def load(
    plan: WeightPlan,
    device: int,
    base: int,
    region_bytes: int,
    *,
    readers: int = READERS,
    slot_bytes: int = SLOT_BYTES,
) -> WeightReport:
    """Do every copy of a plan; returns when all bytes are on the device.

    Runs without the interpreter lock, so a thread of it overlaps with other work of a boot.

    Args:
        plan: of `plan_weights`.
        device: handle of `vcc_device_open`.
        base: device address of the WEIGHTS region.
        region_bytes: its size.
        readers: threads at most.
        slot_bytes: of a pinned slot; two a reader.

    Raises:
        ModelError: a file cannot be read or is cut short.
        DeviceError: the driver refused, or there is no memory for the ring.
    """
    paths = b"".join(os.fsencode(file) + b"\0" for file in plan.files)
    least = struct.pack(f"<{len(plan.least)}Q", *plan.least)
    try:
        done = _C.vcc_weights_load(
            *(device, base, region_bytes),
            *(paths, len(paths), least, len(plan.files)),
            *(plan.copies, plan.count, plan.constants, len(plan.constants)),
            *(readers, slot_bytes),
        )
    except UsageError as error:
        raise ModelError(error.what, error.why, error.hint) from error
    return WeightReport(*done)


def check_stored_heads(
    bindings: Mapping[str, Binding], tensors: Mapping[str, TensorInfo], chunk: int = 1 << 26
) -> None:
    """A tied head that is stored as well must equal the embedding, or tying loses weights.

    Raises:
        ModelError: it does not.
    """
    if bindings.get("head.weight") != Tied("embed.weight") or HEAD not in tensors:
        return
    import numpy as np

    head, embed = _raw(tensors[HEAD]), _raw(tensors[EMBED])
    starts = range(0, len(head), chunk)
    same = len(head) == len(embed) and all(
        np.array_equal(head[at : at + chunk], embed[at : at + chunk]) for at in starts
    )
    if not same:
        raise ModelError(
            "config.json and the weights disagree",
            f"tie_word_embeddings is true, but {HEAD} differs from {EMBED}",
            'set "tie_word_embeddings": false in config.json',
        )


def _raw(info: TensorInfo) -> Any:
    import numpy as np

    return np.memmap(info.stored(), np.uint8, "r", info.start, (info.end - info.start,))


def _in_weights(kind: int) -> bool:
    if kind != WEIGHTS:
        raise IntegrityError("a node table is refused", "a weight lies outside the weights")
    return True


def _number(value: object) -> int:
    if type(value) is not int:
        raise IntegrityError("a node table is refused", f"a weight's place depends on {value!r}")
    return value
