"""Play a table of fixed sizes at given addresses: the proof of a recording, and benchmarks.

The step of a model is played by csrc/player; this does the same with the least machinery, so that a
recording is judged by something else than what will play it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from vcc.engine.graphs.expr import evaluate
from vcc.engine.graphs.table.types import (
    NON_PORTABLE_CLUSTER,
    Kernel,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
)
from vcc.engine.native import functions

_native = functions(
    {
        "vcc_replay_allocate": "u64 -> u64",
        "vcc_replay_free": "u64",
        "vcc_replay_fill": "u64 u32 u64",
        "vcc_replay_write": "u64 buffer u64",
        "vcc_replay_read": "u64 buffer u64",
        "vcc_replay_function": "bytes str i32 i32 i32 -> ptr",
        "vcc_replay_create": "-> ptr",
        "vcc_replay_kernel": "ptr ptr bytes bytes u64 bytes u64",
        "vcc_replay_memset": "ptr u64 u64 u32 u32 u64 u64",
        "vcc_replay_memcpy": "ptr u64 u64 u64",
        "vcc_replay_empty": "ptr",
        "vcc_replay_edges": "ptr bytes u64",
        "vcc_replay_instantiate": "ptr",
        "vcc_replay_launch": "ptr u32 -> f64",
        "vcc_replay_destroy": "ptr",
    }
)

DEFAULT_SHARED = 48 << 10
"""Dynamic shared memory that a kernel may use without asking, bytes."""

_FORMATS: Mapping[ParamKind, str] = {
    ParamKind.POINTER: "<Q",
    ParamKind.I32: "<I",
    ParamKind.I64: "<q",
    ParamKind.F32: "<I",
    ParamKind.F64: "<Q",
}


class DeviceBytes:
    """Device memory of the current context, freed at the end of a `with` block."""

    def __init__(self, size: int) -> None:
        self.size = max(size, 1)
        self.address: int = _native.vcc_replay_allocate(self.size)

    def __enter__(self) -> DeviceBytes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _native.vcc_replay_free(self.address)


def fill(address: int, byte: int, size: int) -> None:
    """Set bytes of device memory."""
    _native.vcc_replay_fill(address, byte, size)


def write(address: int, data: np.ndarray[Any, Any]) -> None:
    """Copy an array to the device."""
    flat = np.ascontiguousarray(data)
    _native.vcc_replay_write(address, flat.view(np.uint8).reshape(-1), flat.nbytes)


def read(address: int, size: int) -> np.ndarray[Any, Any]:
    """Copy bytes from the device, uint8 [size]."""
    data = np.empty(size, np.uint8)
    _native.vcc_replay_read(address, data, size)
    return data


class Functions:
    """Kernels of tables, each loaded once."""

    def __init__(self, cubins: Mapping[str, bytes]) -> None:
        self._cubins = cubins
        self._loaded: dict[tuple[str, str, int, int, int], int] = {}

    def handle(self, kernel: Kernel) -> int:
        """The loaded function of a kernel, with its attributes set."""
        shared = kernel.shared if kernel.shared > DEFAULT_SHARED else 0
        flag = int(bool(kernel.flags & NON_PORTABLE_CLUSTER))
        key = (kernel.cubin, kernel.function, shared, kernel.carveout, flag)
        if key not in self._loaded:
            code = self._cubins[kernel.cubin]
            self._loaded[key] = _native.vcc_replay_function(code, *key[1:])
        return self._loaded[key]


class Replay:
    """A graph made of the nodes of one table, or of several after each other.

    Args:
        functions: loaded kernels.
    """

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._handle: int = _native.vcc_replay_create()
        self._nodes = 0
        self._edges: list[tuple[int, ...]] = []

    def add(self, table: NodeTable, bases: Sequence[int], sizes: Mapping[str, int]) -> None:
        """Append all nodes of a table, after what is there.

        Args:
            table: of kernels and memory operations; no matrix products.
            bases: the address of each region.
            sizes: the value of each symbol.
        """
        start = self._nodes
        for node in table.nodes:
            values = [evaluate(size, sizes) for size in node.grid]
            _ADDERS[node.kind](self, table, node, block_of(table, node, bases, sizes), values)
            self._nodes += 1
        inner = [(e.source, e.target, e.type, e.source_port, e.target_port) for e in table.edges]
        if not inner:
            inner = [(i, i + 1, 0, 0, 0) for i in range(len(table.nodes) - 1)]
        self._edges += [(start + e[0], start + e[1], *e[2:]) for e in inner]
        self._join(start, {e[1] for e in inner}, len(table.nodes))

    def launch_own(self, kernel: Kernel, grid: Sequence[int], block: bytes) -> None:
        """Append one launch with a ready parameter block."""
        self._kernel(kernel, grid, block)
        if self._nodes:
            self._edges.append((self._nodes - 1, self._nodes, 0, 0, 0))
        self._nodes += 1

    def copy_own(self, target: int, source: int, size: int) -> None:
        """Append a copy within the device that waits for nothing."""
        _native.vcc_replay_memcpy(self._handle, target, source, size)
        self._nodes += 1

    def set_own(self, target: int, byte: int, size: int) -> None:
        """Append a fill with a byte that waits for nothing."""
        _native.vcc_replay_memset(self._handle, target, 0, byte, 1, size, 1)
        self._nodes += 1

    def instantiate(self) -> Replay:
        """Make it executable."""
        packed = b"".join(struct.pack("<5I", *edge) for edge in self._edges)
        _native.vcc_replay_edges(self._handle, packed, len(self._edges))
        _native.vcc_replay_instantiate(self._handle)
        return self

    def launch(self, times: int = 1) -> float:
        """Launch and wait; microseconds of the device for one launch."""
        return float(_native.vcc_replay_launch(self._handle, times))

    def close(self) -> None:
        """Free the graph."""
        _native.vcc_replay_destroy(self._handle)

    def _join(self, start: int, entered: set[int], count: int) -> None:
        """First nodes wait for the last node of what came before."""
        if start == 0:
            return
        firsts = (index for index in range(count) if index not in entered)
        self._edges += [(start - 1, start + index, 0, 0, 0) for index in firsts]

    def _kernel(self, kernel: Kernel, grid: Sequence[int], block: bytes) -> None:
        dimensions = struct.pack("<7I", *grid, *kernel.block, kernel.shared)
        attributes = b"".join(struct.pack("<II", id, 0) + value for id, value in kernel.attributes)
        function = self._functions.handle(kernel)
        arguments = (dimensions, block, len(block), attributes, len(kernel.attributes))
        _native.vcc_replay_kernel(self._handle, function, *arguments)

    def add_kernel(self, table: NodeTable, node: Node, block: bytes, grid: Sequence[int]) -> None:
        """A node of a table; `block` is its parameter block."""
        self._kernel(table.kernels[node.target], grid, block)

    def add_memset(self, table: NodeTable, node: Node, block: bytes, grid: Sequence[int]) -> None:
        """A node of a table."""
        target, value, element, width, height, pitch = struct.unpack("<QIIQQQ", block)
        arguments = (target, pitch, value, element, width, height)
        _native.vcc_replay_memset(self._handle, *arguments)

    def add_memcpy(self, table: NodeTable, node: Node, block: bytes, grid: Sequence[int]) -> None:
        """A node of a table."""
        target, source, size = struct.unpack_from("<QQQ", block)
        _native.vcc_replay_memcpy(self._handle, target, source, size)

    def add_empty(self, table: NodeTable, node: Node, block: bytes, grid: Sequence[int]) -> None:
        """A node of a table."""
        _native.vcc_replay_empty(self._handle)


_ADDERS: Mapping[NodeKind, Callable[[Replay, NodeTable, Node, bytes, Sequence[int]], None]] = {
    NodeKind.KERNEL: Replay.add_kernel,
    NodeKind.MEMSET: Replay.add_memset,
    NodeKind.MEMCPY: Replay.add_memcpy,
    NodeKind.EMPTY: Replay.add_empty,
}

_FIXED_BLOCK = 40
"""Bytes that the parameters of a node that is no kernel take."""


def block_of(table: NodeTable, node: Node, bases: Sequence[int], sizes: Mapping[str, int]) -> bytes:
    """The parameter block of a node with its addresses filled in."""
    kernel = node.kind is NodeKind.KERNEL
    block = bytearray(table.kernels[node.target].param_bytes if kernel else _FIXED_BLOCK)
    for param in node.params:
        data = _bytes(param, bases, sizes)
        block[param.offset : param.offset + len(data)] = data
    return bytes(block)


def _bytes(param: Param, bases: Sequence[int], sizes: Mapping[str, int]) -> bytes:
    if param.kind is ParamKind.BYTES:
        return bytes(param.value)
    if param.kind is ParamKind.NULL:
        return bytes(8)
    value = evaluate(param.value, sizes)
    base = bases[param.region] if param.kind is ParamKind.POINTER else 0
    return struct.pack(_FORMATS[param.kind], base + value)
