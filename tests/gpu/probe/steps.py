"""A table at given sizes: launches in order whose pointers are (region, name, byte offset).

The same expansion feeds the player on a device and the check on the CPU. Free of torch and Triton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from table import Buffer, Gemm, GemmVariant, Launch, Piece, Refused, SplittingOp, Table, View

from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.packing import Placement, pack
from vcc.engine.graphs.program import VERSION, Call, Program

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "int32": 4, "int64": 8}
ALIGNMENT = 16
"""Inductor's and Triton's code assumes that every pointer is a multiple of this."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the expanded step: `offset` bytes into the memory called `home`.

    `home` is a value's name, or `<call>/<buffer>` for a buffer inside a piece.
    """

    home: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of a dense tensor of this shape."""
        return prod(self.shape) * BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Ready:
    """One launch with every size known; `words` follow the kernel's parameters."""

    kernel: str
    grid: tuple[int, int, int]
    words: tuple[Tensor | int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A whole step at given sizes: launches in order, and bytes of each workspace buffer."""

    nodes: tuple[Ready, ...]
    buffers: Mapping[str, int]


def expand(table: Table, sizes: Mapping[str, int]) -> Step:
    """Every launch of a step of the given T, B and K.

    Raises:
        Refused: a size outside its declared range, or a pointer that is not aligned.
    """
    for symbol in table.symbols:
        if not symbol.low <= sizes[symbol.name] <= symbol.high:
            raise Refused(f"{symbol.name} = {sizes[symbol.name]} is outside its declared range")
    walker = _Walker(table, sizes)
    for index, call in enumerate(table.calls):
        walker.call(index, call.target, call.values)
    return Step(tuple(walker.nodes), walker.buffers)


def place(table: Table, sizes: Mapping[str, int]) -> Placement:
    """Offsets of all workspace buffers by liveness, for the largest sizes that will run."""
    step = expand(table, sizes)
    calls = []
    for node in step.nodes:
        used = [w.home for w in node.words if isinstance(w, Tensor) and w.home in step.buffers]
        calls.append(Call("op", node.kernel, list(used), []))
    outputs = [name for name in table.outputs if name in step.buffers]
    return pack(Program(VERSION, [], [], calls, outputs), step.buffers)


class _Walker:
    def __init__(self, table: Table, sizes: Mapping[str, int]) -> None:
        self._table, self._sizes = table, sizes
        self.nodes: list[Ready] = []
        self.buffers: dict[str, int] = {}
        self._values = {v.name: self._value(v) for v in table.values}

    def call(self, index: int, target: str, values: Sequence[str]) -> None:
        piece = self._table.pieces.get(target) or self._table.ops[target]
        if isinstance(piece, SplittingOp):
            known = dict(zip(piece.tensors, (self._values[v] for v in values), strict=True))
            self._launch(piece.launch, known, self._sizes)
        else:
            self._piece(index, piece, [self._values[v] for v in values])

    def _value(self, value: Any) -> Tensor:
        shape = evaluate_all(value.shape, self._sizes)
        tensor = Tensor(value.name, value.dtype, shape, dense(shape))
        if value.role == "buffer":
            self.buffers[value.name] = tensor.bytes
        return tensor

    def _piece(self, index: int, piece: Piece, given: list[Tensor]) -> None:
        known = dict(zip(piece.arguments, given, strict=True))
        sizes = {name: given[i].shape[dim] for name, (i, dim) in piece.sizes.items()}
        for node in piece.nodes:
            if isinstance(node, Buffer):
                known[node.name] = self._buffer(f"{index}/{node.name}", node, sizes)
            elif isinstance(node, View):
                known[node.name] = _view(known[node.of], node, sizes)
            elif isinstance(node, Gemm):
                self._gemm(node, known, sizes)
            else:
                self._launch(node, known, sizes)

    def _buffer(self, home: str, node: Buffer, sizes: Mapping[str, int]) -> Tensor:
        shape, stride = evaluate_all(node.shape, sizes), evaluate_all(node.stride, sizes)
        if stride != dense(shape):
            raise Refused(f"{home} is not dense")
        tensor = Tensor(home, node.dtype, shape, stride)
        self.buffers[home] = tensor.bytes
        return tensor

    def _launch(self, node: Launch, known: Mapping[str, Tensor], sizes: Mapping[str, int]) -> None:
        kernel = self._table.kernels[node.kernel]
        words = tuple(
            known[node.arguments[name]]
            if kind.startswith("*")
            else evaluate(node.arguments[name], sizes)
            for name, kind in kernel.parameters
        )
        x, y, z = evaluate_all(node.grid, sizes)
        self._add(Ready(node.kernel, (x, y, z), words))

    def _gemm(self, node: Gemm, known: Mapping[str, Tensor], sizes: Mapping[str, int]) -> None:
        rows = evaluate(node.rows, sizes)
        variant = choose(self._table.gemms, rows, node.c is not None)
        if node.n % variant.tile_n or node.k % variant.tile_k:
            raise Refused(f"no gemm variant has tiles for n {node.n}, k {node.k}")
        a, w, d = known[node.a], known[node.w], known[node.d]
        given = {"a": a, "w": w, "c": known[node.c] if node.c else d, "d": d}
        numbers = {"rows": rows, "n": node.n, "k": node.k}
        kernel = self._table.kernels[variant.kernel]
        words = tuple({**given, **numbers}[name] for name, _ in kernel.parameters)
        grid = (node.n // variant.tile_n, -(-rows // variant.tile_rows), 1)
        self._add(Ready(variant.kernel, grid, words))

    def _add(self, node: Ready) -> None:
        for word in node.words:
            if isinstance(word, Tensor) and word.offset % ALIGNMENT:
                raise Refused(f"{word.home} + {word.offset} is not aligned")
        self.nodes.append(node)


def choose(variants: Sequence[GemmVariant], rows: int, has_c: bool) -> GemmVariant:
    """The first variant that takes this many rows."""
    for variant in variants:
        if variant.has_c == has_c and (not variant.most_rows or rows <= variant.most_rows):
            return variant
    raise Refused(f"no gemm variant for {rows} rows")


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _view(base: Tensor, node: View, sizes: Mapping[str, int]) -> Tensor:
    shape, stride = evaluate_all(node.shape, sizes), evaluate_all(node.stride, sizes)
    offset = base.offset + evaluate(node.offset, sizes) * BYTES[base.dtype]
    return Tensor(base.home, base.dtype, shape, stride, offset)
