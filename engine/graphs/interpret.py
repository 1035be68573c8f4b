"""Run a node table on the CPU: kernels by Triton's interpreter, matrix products in fp32.

This checks what no type can show: that a table's order, grids, arguments, offsets and sizes mean
the step of the model. It needs the kernels' sources, which a build hands over in memory and an
artifact never has. Triton's interpreter multiplies bf16 wrongly: a table is built in fp32 for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import unpack
from typing import Any

import numpy as np
import torch

from vcc.cache.errors import CompileError, IntegrityError
from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.host_memory import HostMemory, OutOfRegion, Reach
from vcc.engine.graphs.interpreted_products import multiply
from vcc.engine.graphs.planner.sources import KernelSource
from vcc.engine.graphs.table.layout import GRID_LIMITS
from vcc.engine.graphs.table.types import (
    NONE,
    READ,
    WRITE,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Segment,
    SegmentKind,
    When,
)
from vcc.engine.torch_shim.interpreter import (
    element_type,
    generated_kernel,
    launch,
    own_kernel,
    watched,
)

CSRC = "csrc/kernels"
"""What kernels name as their module that Triton did not compile."""

ELEMENTS: Mapping[str, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i1": torch.bool,
}
"""Torch's dtype of what a Triton pointer points to."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Which nodes run: a pure decode step or another, with head, tail and adapters or not."""

    uniform: bool
    advance: bool = False
    sample: bool = False
    adapted: bool = False

    def runs(self, segment: Segment) -> bool:
        """Whether a segment is part of the step."""
        asked = {SegmentKind.ADVANCE: self.advance, SegmentKind.SAMPLE: self.sample}
        return asked.get(segment.kind, True)

    def takes(self, node: Node) -> bool:
        """Whether a node of such a segment runs."""
        if node.when is When.ADAPTED:
            return self.adapted
        return node.when in (When.ALWAYS, When.UNIFORM if self.uniform else When.MIXED)


class Interpreter:
    """A table's kernels as functions of host memory.

    Args:
        table: any table whose kernels have sources.
        sources: by cubin digest.
        folder: where rewritten generated modules are put.

    Raises:
        IntegrityError: a kernel has no source.
    """

    def __init__(self, table: NodeTable, sources: Mapping[str, KernelSource], folder: Path) -> None:
        self.table = table
        self._sources = [
            _source(kernel.cubin, kernel.function, sources) for kernel in table.kernels
        ]
        self._functions = [_function(source, folder) for source in self._sources]
        self._constants = [
            {name: _constant(value) for name, value in source.constants.items()}
            for source in self._sources
        ]

    def segments(self, memory: HostMemory, shape: Shape) -> Iterator[Segment]:
        """Run the step; yields each segment after its nodes have run.

        Raises:
            OutOfRegion: a node reaches outside the regions it has pointers to.
            CompileError: a kernel that the interpreter cannot run.
        """
        first = 0
        for segment in self.table.segments:
            nodes = range(first, first + segment.nodes)
            first += segment.nodes
            if not shape.runs(segment):
                continue
            for index in nodes:
                if shape.takes(self.table.nodes[index]):
                    self._run(index, segment, memory)
            yield segment

    def _run(self, index: int, segment: Segment, memory: HostMemory) -> None:
        node = self.table.nodes[index]
        RUN[node.kind](self, f"node {index} of {segment.name}", node, memory)

    def kernel(self, name: str, node: Node, memory: HostMemory) -> None:
        """Launch a kernel node, with every access checked."""
        source = self._sources[node.target]
        name = f"{source.function} ({name})"
        grid = evaluate_all(node.grid, memory.sizes)
        if not all(1 <= size <= most for size, most in zip(grid, GRID_LIMITS, strict=True)):
            raise IntegrityError(f"{name} has grid {grid}", f"allowed: 1 to {GRID_LIMITS}")
        words = _words(source, node, memory, name) | self._constants[node.target]
        reach = _reach(node, name)

        def check(addresses: Any, mask: Any, item: int, write: bool) -> None:
            memory.check(addresses, mask, item, write, reach)

        x, y, z = grid
        with watched(check):
            launch(self._functions[node.target], (x, y, z), words)

    def gemm(self, name: str, node: Node, memory: HostMemory) -> None:
        """d = a @ w.T (+ c), summed in fp32."""
        multiply(self.table.gemms[node.target], node, memory)

    def memset(self, name: str, node: Node, memory: HostMemory) -> None:
        """Rows of `width` equal elements, `pitch` bytes apart."""
        place, value, item, width, height, pitch = (
            evaluate(param.value, memory.sizes) for param in node.params
        )
        pattern = np.frombuffer(int(value).to_bytes(8, "little")[:item], np.uint8)
        for row in range(height):
            at = memory.place(node.params[0].region, place + row * pitch)
            memory.block[at : at + width * item] = np.tile(pattern, width)

    def memcpy(self, name: str, node: Node, memory: HostMemory) -> None:
        """Bytes from one place to another."""
        to, source, length = node.params
        places = [
            memory.place(one.region, evaluate(one.value, memory.sizes)) for one in (to, source)
        ]
        count = evaluate(length.value, memory.sizes)
        copied = memory.block[places[1] : places[1] + count].copy()
        memory.block[places[0] : places[0] + count] = copied

    def empty(self, name: str, node: Node, memory: HostMemory) -> None:
        """Nothing."""


RUN: Mapping[NodeKind, Callable[[Interpreter, str, Node, HostMemory], None]] = {
    NodeKind.KERNEL: Interpreter.kernel,
    NodeKind.GEMM: Interpreter.gemm,
    NodeKind.MEMSET: Interpreter.memset,
    NodeKind.MEMCPY: Interpreter.memcpy,
    NodeKind.EMPTY: Interpreter.empty,
}


def _source(cubin: str, function: str, sources: Mapping[str, KernelSource]) -> KernelSource:
    found = sources.get(cubin)
    if found is None:
        raise IntegrityError(
            f"kernel {function} has no source",
            f"its cubin {cubin[:16]} did not come from this build",
            "a recorded table, or one of another build, cannot be interpreted",
        )
    return found


def _function(source: KernelSource, folder: Path) -> Any:
    if source.module == CSRC:
        raise CompileError(
            f"Triton's interpreter cannot run {source.function}",
            "it is a kernel of csrc/kernels, which is compiled by nvcc",
            "check the step with Triton's kernels in its place: custom_ops +NAME:triton",
        )
    if source.module:
        return own_kernel(source.module, source.function)
    return generated_kernel(source.text, source.function, folder, f"k_{source.cubin[:24]}")


def _constant(value: Any) -> Any:
    named = isinstance(value, str) and value.startswith("dtype:")
    return element_type(value.removeprefix("dtype:")) if named else value


def _reach(node: Node, name: str) -> Reach:
    pointers = [param for param in node.params if param.kind is ParamKind.POINTER]
    return Reach(
        name,
        frozenset(one.region for one in pointers if one.access & READ),
        frozenset(one.region for one in pointers if one.access & WRITE),
    )


def _words(source: KernelSource, node: Node, memory: HostMemory, name: str) -> dict[str, Any]:
    """A kernel's arguments by name, from what stands at their bytes of the parameter block."""
    kinds, at = dict(source.parameters), {param.offset: param for param in node.params}
    words = {}
    for parameter, offset in source.offsets().items():
        param = at.get(offset)
        if param is None:
            raise IntegrityError(f"{name} is not given parameter {parameter}")
        words[parameter] = _word(param, kinds[parameter], memory, f"{name}, {parameter}")
    return words


def _word(param: Param, kind: str, memory: HostMemory, name: str) -> Any:
    pointer = param.kind in (ParamKind.POINTER, ParamKind.NULL)
    if pointer != kind.startswith("*"):
        raise IntegrityError(f"{name} is {kind} and is given a {param.kind.name}")
    if pointer:
        return _pointer(param, kind, memory, name)
    if param.kind in (ParamKind.I32, ParamKind.I64):
        wide = param.kind is ParamKind.I64
        if wide != (kind == "i64"):
            raise IntegrityError(f"{name} is {kind} and is given a {param.kind.name}")
        return evaluate(param.value, memory.sizes)
    if param.kind in (ParamKind.F32, ParamKind.F64):
        size, code = (4, "<f") if param.kind is ParamKind.F32 else (8, "<d")
        return unpack(code, int(param.value).to_bytes(size, "little"))[0]
    raise IntegrityError(f"{name} is given raw bytes", "a recorded table cannot be interpreted")


def _pointer(param: Param, kind: str, memory: HostMemory, name: str) -> torch.Tensor:
    """A tensor that begins where the pointer points; a null one points into a gap."""
    dtype = ELEMENTS.get(kind[1:])
    if dtype is None:
        raise IntegrityError(f"{name} points to {kind[1:]}", f"known: {', '.join(ELEMENTS)}")
    null = param.kind is ParamKind.NULL or param.region == NONE
    place = 0 if null else memory.place(param.region, evaluate(param.value, memory.sizes))
    if (memory.block.ctypes.data + place) % dtype.itemsize:
        raise OutOfRegion(f"{name} is not at a multiple of {dtype.itemsize}")
    # The address alone counts: the interpreter reaches the memory itself, by numbers.
    return torch.from_numpy(memory.block[place : place + dtype.itemsize]).view(dtype)
