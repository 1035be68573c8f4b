"""The native recorder: CUPTI, captured graphs, cuBLASLt. For processes that build and exit.

A subscription to CUPTI makes every later graph launch of the process dearer, so nothing that serves
may call this.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from vcc.cache.digest import Digest
from vcc.engine.config.environment import read_environment
from vcc.engine.graphs.recorder.draft import Draft, read_draft
from vcc.engine.graphs.table.layout import DTYPE_NAMES, SCALES
from vcc.engine.native import functions
from vcc.engine.tune.libraries import CUBLASLT, CUPTI, candidates
from vcc.engine.tune.shapes import GemmShape

_native = functions(
    {
        "vcc_recorder_open": "str i32",
        "vcc_recorder_watch": "str -> str",
        "vcc_recorder_spread_heap": "u64",
        "vcc_recorder_spread_mappings": "u64",
        "vcc_recorder_cubin_size": "u64 -> u64",
        "vcc_recorder_cubin": "u64 buffer u64",
        "vcc_recorder_graph": "ptr -> str",
        "vcc_lt_open": "str -> u64 str",
        "vcc_lt_workspace": "bytes -> u64",
        "vcc_lt_record": "bytes bytes u32 -> str",
        "vcc_lt_run": "bytes bytes",
        "vcc_pool_reserve": "u64 u64 -> u64",
        "vcc_pool_open": "u32 i32 u64 u64",
        "vcc_pool_used": "u32 -> u64",
    }
)


class Cubins:
    """The code that the driver has loaded since `watch`, by number and by digest."""

    def __init__(self) -> None:
        self._digests: dict[int, str] = {}
        self.bytes: dict[str, bytes] = {}

    def digest(self, number: int) -> str:
        """The SHA-256 in hex of a cubin by its number; its bytes are in `bytes` from then on."""
        if number not in self._digests:
            data = bytearray(_native.vcc_recorder_cubin_size(number))
            _native.vcc_recorder_cubin(number, data, len(data))
            self._digests[number] = Digest.of(data).hex
            self.bytes[self._digests[number]] = bytes(data)
        return self._digests[number]


def watch(paths: Sequence[str] | None = None) -> str:
    """Keep every cubin that the driver loads from now on; the path of the CUPTI that is used.

    Raises:
        DeviceError: there is no CUPTI, or it refuses; with what works without it.
    """
    found = candidates(CUPTI) if paths is None else paths
    return str(_native.vcc_recorder_watch("\n".join(found)))


def open_driver(ordinal: int = -1) -> None:
    """Load the driver; with an ordinal also make that device current in this thread.

    Raises:
        DeviceError: no driver, or no such device.
    """
    _native.vcc_recorder_open(read_environment().libcuda, ordinal)


def spread_heap(size: int) -> None:
    """Take all free blocks of malloc's heap, then `size` bytes more."""
    _native.vcc_recorder_spread_heap(size)


def spread_mappings(size: int) -> None:
    """Take all holes between this process's mappings, then `size` bytes of addresses.

    Raises:
        DeviceError: there are not so many.
    """
    _native.vcc_recorder_spread_mappings(size)


def describe(graph: int, cubins: Cubins) -> str:
    """A captured graph as text that means the same in every process: cubins by digest.

    Args:
        graph: address of a `CUgraph`.
        cubins: filled with the code of its kernels.
    """
    found = json.loads(_native.vcc_recorder_graph(graph))
    for node in found["nodes"]:
        if "cubin" in node:
            node["cubin"] = cubins.digest(node["cubin"])
    return json.dumps(found)


def open_cublaslt(paths: Sequence[str] | None = None) -> tuple[int, str]:
    """Load cuBLASLt: its version (130100 for 13.1.0) and its path.

    Raises:
        DeviceError: there is none, with what works without it.
    """
    found = candidates(CUBLASLT) if paths is None else paths
    version, path = _native.vcc_lt_open("\n".join(found))
    return int(version), str(path)


SMALL_WORKSPACE = 1 << 20
"""Bytes that cuBLASLt may take where it is to choose a product of a small workspace."""


def workspace_bytes(shape: GemmShape, *, small: bool = False) -> int:
    """Bytes of workspace that cuBLASLt's choice for a product needs."""
    return int(_native.vcc_lt_workspace(_numbers(shape, small)))


def record_product(
    shape: GemmShape, operands: Sequence[int], turn: int, cubins: Cubins, *, small: bool = False
) -> Draft:
    """The nodes that cuBLASLt would launch, without launching them.

    Args:
        shape: the product.
        operands: addresses by the index of an OPERAND region; nothing needs to lie there.
        turn: 0 to 2; stack, and bytes of dead memory, differ from turn to turn.
        cubins: filled with the code.
        small: its choice with SMALL_WORKSPACE.
    """
    text = _native.vcc_lt_record(_numbers(shape, small), _packed(operands), turn)
    return read_draft(text, cubins.digest)


def run_product(shape: GemmShape, operands: Sequence[int], *, small: bool = False) -> None:
    """Compute a product by cuBLASLt itself, and wait."""
    _native.vcc_lt_run(_numbers(shape, small), _packed(operands))


def reserve(wanted: int, size: int) -> int:
    """Reserve addresses at `wanted`, or anywhere for 0; where the driver has them.

    They are given back at once when that is not where they were wanted.

    Raises:
        DeviceError: the driver has none.
    """
    return int(_native.vcc_pool_reserve(wanted, size))


def open_pool(index: int, ordinal: int, base: int, size: int) -> None:
    """Make `size` bytes from `base` on, in a reservation, a pool (csrc/recorder/pool.h)."""
    _native.vcc_pool_open(index, ordinal, base, size)


def pool_used(index: int) -> int:
    """Bytes that a pool has handed out."""
    return int(_native.vcc_pool_used(index))


def _numbers(shape: GemmShape, small: bool) -> bytes:
    """`Product` of csrc/recorder/lt.h."""
    out = DTYPE_NAMES.index(shape.out) if shape.scales else 0
    types = (DTYPE_NAMES.index(shape.dtype), shape.has_c, out, SCALES.index(shape.scales))
    return struct.pack("<8I", shape.m, shape.n, shape.k, *types, small)


def _packed(operands: Sequence[int]) -> bytes:
    return struct.pack("<7Q", *operands)
