"""Inductor's FX wrapper to nodes of the table: one compiled piece, everything bound by name.

Private API of torch, kept in the probe (`wrapper_fxir` of torch 2.13).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from cubins import Cubin, cubin_of
from table import Buffer, Gemm, Launch, Node, Piece, Refused, View
from torch.fx import Node as FxNode

from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.graphs.expr import Expr
from vcc.engine.partition.canonical import fake_arguments
from vcc.engine.types import Piece as TracedPiece

OPTIONS: Mapping[str, Any] = {
    "alignment_asserts": False,
    "compile_threads": 1,
    "fx_graph_cache": False,
    "fx_wrapper": True,
    "joint_graph_constant_folding": False,
    "size_asserts": False,
    "triton.autotune_at_compile_time": False,
}
"""No benchmark, so the first configuration of each kernel is kept."""

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Compiled:
    """A piece as nodes, its kernels by digest, and their source texts for the CPU check."""

    piece: Piece
    cubins: Mapping[str, Cubin]
    sources: Mapping[str, str]


def compile_piece(piece: TracedPiece) -> Compiled:
    """Compile one unique piece for the installed target.

    Raises:
        Refused: the piece holds something that the table cannot express; names it.
    """
    from torch._inductor import aot_compile

    with _recorded_tuners() as tuners:
        graph: Any = aot_compile(piece.graph, fake_arguments(piece), options=dict(OPTIONS))
    reader = _Reader(piece, tuners)
    for node in graph.graph.nodes:
        reader.read(node)
    return reader.finish()


@contextmanager
def _recorded_tuners() -> Iterator[dict[int, Any]]:
    """The tuner of each kernel function that is generated inside, by `id(function)`."""
    from torch._inductor.codegen.wrapper_fxir import FxConverter

    original, found = FxConverter._import_kernel, {}

    def recorded(self: Any, code: str, kernel_name: str) -> Any:
        tuner = original(self, code, kernel_name)
        found[id(tuner.fn)] = tuner
        return tuner

    FxConverter._import_kernel = recorded
    try:
        yield found
    finally:
        FxConverter._import_kernel = original


@dataclass(frozen=True, slots=True)
class _Geometry:
    shape: Sequence[Expr]
    stride: Sequence[Expr]


def times(left: Expr, right: Expr) -> Expr:
    """A product; `-(-x // d)`, Inductor's way to round up, becomes `(x + d - 1) // d`."""
    if left == -1 and isinstance(right, list) and right[0] == "//":
        return ["//", ["+", negated(right[1]), right[2] - 1], right[2]]
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    return right if left == 1 else ["*", left, right]


def negated(value: Expr) -> Expr:
    """Minus a product whose first factor is a negative number."""
    if isinstance(value, list) and value[0] == "*" and isinstance(value[1], int) and value[1] < 0:
        return value[2] if value[1] == -1 else ["*", -value[1], *value[2:]]
    raise Refused(f"{value!r:.60} is negative or subtracted, which no size of a table is")


ARITHMETIC: Mapping[Any, Callable[[Expr, Expr], Expr]] = {
    operator.mul: times,
    operator.add: lambda a, b: ["+", a, b],
    operator.floordiv: lambda a, b: ["//", a, b],
    operator.mod: lambda a, b: ["%", a, b],
    torch.sym_max: lambda a, b: ["max", a, b],
    torch.sym_min: lambda a, b: ["min", a, b],
}


@dataclass(slots=True)
class _Reader:
    """Reads one FX graph of launches in order."""

    traced: TracedPiece
    tuners: Mapping[int, Any]
    arguments: list[str] = field(default_factory=list)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    values: dict[FxNode, Expr] = field(default_factory=dict)
    geometry: dict[str, _Geometry] = field(default_factory=dict)
    cubins: dict[str, Cubin] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def read(self, node: FxNode) -> None:
        handler = HANDLERS.get(node.op if node.op != "call_function" else node.target)
        if handler is not None:
            handler(self, node)
        elif node.target in ARITHMETIC:
            left, right = (self.expr(a) for a in node.args)
            self.values[node] = ARITHMETIC[node.target](left, right)
        elif _is_launch(node):
            self.launch(node)
        else:
            raise Refused(f"piece {self.traced.id[:8]}: a table cannot express {node.target}")

    def finish(self) -> Compiled:
        used = {name for node in self.nodes for name in _named(node)}
        nodes = [n for n in self.nodes if not isinstance(n, View) or n.name in used]
        return Compiled(Piece(self.arguments, self.sizes, nodes), self.cubins, self.sources)

    def expr(self, value: Any) -> Expr:
        if isinstance(value, FxNode):
            return self.values[value]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise Refused(f"{value!r:.60} is no size")

    def placeholder(self, node: FxNode) -> None:
        spec = self.traced.arguments[len(self.arguments)]
        shape: Any = list(spec.shape)
        self.geometry[node.name] = _Geometry(shape, _dense(shape))
        self.arguments.append(node.name)

    def output(self, node: FxNode) -> None:
        if list(node.args[0]):  # type: ignore[arg-type]
            raise Refused(f"piece {self.traced.id[:8]} returns tensors instead of writing buffers")

    def size(self, node: FxNode) -> None:
        tensor, dim = node.args
        index = self.arguments.index(tensor.name)  # type: ignore[union-attr]
        name: Any = self.traced.arguments[index].shape[dim]  # type: ignore[index]
        self.values[node] = name
        self.sizes[name] = (index, dim)  # type: ignore[assignment]

    def buffer(self, node: FxNode) -> None:
        shape, stride = ([self.expr(size) for size in part] for part in node.args)  # type: ignore[union-attr]
        self.geometry[node.name] = _Geometry(shape, stride)
        self.nodes.append(Buffer(node.name, NAMES[node.kwargs["dtype"]], shape, stride))  # type: ignore[index]

    def view(self, node: FxNode) -> None:
        of, shape, stride, offset = node.args
        shape, stride = ([self.expr(size) for size in part] for part in (shape, stride))  # type: ignore[union-attr]
        self.geometry[node.name] = _Geometry(shape, stride)
        self.nodes.append(View(node.name, of.name, shape, stride, self.expr(offset)))  # type: ignore[union-attr]

    def product(self, node: FxNode) -> None:
        names = [a.name for a in (*node.args, node.kwargs["out"])]  # type: ignore[union-attr]
        if any(node.kwargs.get(key, 1) != 1 for key in ("alpha", "beta")):
            raise Refused(f"{node.name}: a scaled matrix product")
        c = names.pop(0) if len(names) == 4 else None
        a, w, d = names
        (rows, k), n = self.geometry[a].shape, self.geometry[w].shape[1]
        wanted = {a: [rows, k], d: [rows, n], **({c: [rows, n]} if c else {})}
        for name, shape in wanted.items():
            if self.geometry[name] != _Geometry(shape, _dense(shape)):
                raise Refused(f"{node.name}: {name} is not a dense matrix of {shape}")
        self.nodes.append(Gemm(a, self._weight(w, n, k), c, d, rows, n, k))

    def _weight(self, name: str, n: int, k: int) -> str:
        """The tensor [n, k] of which `name` is the transpose."""
        view = next((v for v in self.nodes if isinstance(v, View) and v.name == name), None)
        turned = self.geometry[name] == _Geometry([k, n], [1, k])
        if view is None or not turned or view.offset != 0 or not isinstance(n * k, int):
            raise Refused(f"{name} is not the transpose of a dense weight")
        return view.of

    def launch(self, node: FxNode) -> None:
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

        function = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])  # type: ignore[arg-type]
        given: dict[str, Any] = dict(node.kwargs["kwargs"])  # type: ignore[arg-type]
        given |= kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"])  # type: ignore[arg-type]
        kernel = self._kernel(function)
        missing = [name for name, _ in kernel.parameters if name not in given]
        if missing:
            raise Refused(f"{kernel.function}: nothing is bound to parameter {missing[0]!r}")
        arguments = {
            name: given[name].name if kind.startswith("*") else self.expr(given[name])
            for name, kind in kernel.parameters
        }
        (grid,) = node.kwargs["grid"]  # type: ignore[misc]
        x, y, z = (self.expr(size) for size in grid)
        self.nodes.append(Launch(kernel.cubin, (x, y, z), arguments))

    def _kernel(self, function: Any) -> Any:
        tuner = self.tuners[id(function)]
        if not tuner.compile_results:
            tuner.precompile()
        # The grid was computed for the first configuration: take its cubin and no other.
        cubin = cubin_of(tuner.compile_results[0].kernel)
        self.cubins[cubin.kernel.cubin] = cubin
        self.sources[cubin.kernel.cubin] = Path(function.fn.__code__.co_filename).read_text()
        return cubin.kernel


HANDLERS: Mapping[Any, Callable[[_Reader, FxNode], None]] = {
    "placeholder": _Reader.placeholder,
    "output": _Reader.output,
    aten.sym_size.int: _Reader.size,
    torch.empty_strided: _Reader.buffer,
    torch.as_strided: _Reader.view,
    aten.mm.out: _Reader.product,
    aten.addmm.out: _Reader.product,
}


def _is_launch(node: FxNode) -> bool:
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation

    return node.target is triton_kernel_wrapper_mutation


def _dense(shape: Sequence[Expr]) -> list[Expr]:
    strides: list[Expr] = [1]
    for size in list(shape)[:0:-1]:
        strides.append(times(size, strides[-1]))
    return strides[::-1]


def _named(node: Node) -> list[str]:
    if isinstance(node, Launch):
        return [value for value in node.arguments.values() if isinstance(value, str)]
    if isinstance(node, Gemm):
        return [name for name in (node.a, node.w, node.c, node.d) if name]
    return [node.of] if isinstance(node, View) else []
