"""Inductor's graph of a piece to work on named tensors, with nothing bound by position."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch.fx import Node

from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.planner.arithmetic import (
    BUILDERS,
    SIZES,
    add,
    checked,
    dense,
    divisor,
    is_dense,
    settled,
    times,
)
from vcc.engine.graphs.planner.own_ops import own_call, own_launch, own_op
from vcc.engine.graphs.planner.refusal import refused
from vcc.engine.graphs.planner.scaled import as_product
from vcc.engine.graphs.planner.types import (
    ALIGNMENT,
    Geometry,
    Launch,
    Placed,
    PlannedPiece,
    Product,
    Work,
)
from vcc.engine.torch_shim.fx_wrapper import FxPiece, launch
from vcc.engine.types import Piece

aten = torch.ops.aten


def read_piece(
    piece: Piece, compiled: FxPiece, arguments: Sequence[str | None], arch: str
) -> PlannedPiece:
    """The work of a compiled piece.

    Args:
        piece: what was compiled.
        compiled: Inductor's graph and kernels.
        arguments: for each argument of the piece a name, or None for an output that is returned.
        arch: the target, whose kernels of ours are taken.

    Raises:
        CompileError: the piece holds something that a node table cannot express; it is named.
    """
    given = [i for i, name in enumerate(arguments) if name is not None]
    reader = _Reader(piece, compiled, given, arch)
    for node in compiled.graph.graph.nodes:
        reader.read(node)
    return reader.finish(arguments)


ARITHMETIC: Mapping[Any, str] = {
    operator.mul: "*",
    operator.add: "+",
    operator.floordiv: "//",
    operator.mod: "%",
    torch.sym_max: "max",
    torch.sym_min: "min",
}


@dataclass(slots=True)
class _Reader:
    """Reads the nodes in order; `positions` are the piece's arguments that are placeholders."""

    piece: Piece
    compiled: FxPiece
    positions: list[int]
    arch: str
    placeholders: list[str] = field(default_factory=list)
    values: dict[Node, Expr] = field(default_factory=dict)
    tensors: dict[str, Placed] = field(default_factory=dict)
    buffers: list[str] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        return {symbol.name: (symbol.low, symbol.high) for symbol in self.piece.symbols}

    @property
    def where(self) -> str:
        return f"piece {self.piece.id[:12]}"

    def read(self, node: Node) -> None:
        handler = HANDLERS.get(node.op if node.op != "call_function" else node.target)
        if handler is not None:
            handler(self, node)
        elif node.target in ARITHMETIC:
            left, right = (self.expr(argument) for argument in node.args)
            made = BUILDERS[ARITHMETIC[node.target]](left, right)
            self.values[node] = settled(made, self.ranges) if _divides(node) else made
        elif own_op(node.target):
            self.operator(node)
        else:
            raise refused(self.where, str(node.target))

    def finish(self, arguments: Sequence[str | None]) -> PlannedPiece:
        names = dict(zip(self.positions, self.placeholders, strict=True))
        returned = iter(self.returned)
        first = len(self.piece.arguments) - self.piece.outputs
        outputs = tuple(
            names[index] if index in names else next(returned)
            for index in range(first, len(arguments))
        )
        return PlannedPiece(
            id=self.piece.id,
            arguments=tuple(names.get(index) for index in range(len(arguments))),
            outputs=outputs,
            tensors=self.tensors,
            buffers=tuple(self.buffers),
            work=tuple(self.work),
        )

    def expr(self, value: Any) -> Expr:
        if isinstance(value, Node):
            return self.values[value]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise refused(self.where, f"the size {value!r:.60}")

    def exprs(self, values: Any) -> tuple[Expr, ...]:
        return tuple(self.expr(value) for value in values)

    def total(self, node: Node) -> None:
        self.values[node] = reduce(add, self.exprs(node.args[0]))

    def power(self, node: Node) -> None:
        """A size times itself, as where a row of scores is as long as there are rows."""
        base, exponent = node.args
        if not isinstance(exponent, int) or exponent < 1:
            raise refused(self.where, f"a size to the power of {exponent!r:.40}")
        self.values[node] = reduce(times, [self.expr(base)] * exponent)

    def placeholder(self, node: Node) -> None:
        spec = self.piece.arguments[self.positions[len(self.placeholders)]]
        geometry = Geometry(NAMES[spec.dtype], spec.shape, dense(spec.shape))
        self.tensors[node.name] = Placed(node.name, geometry)
        self.placeholders.append(node.name)

    def output(self, node: Node) -> None:
        results: Any = node.args[0]
        single = isinstance(results, Node)
        self.returned = [result.name for result in ((results,) if single else results)]

    def size(self, node: Node) -> None:
        tensor, dim = node.args
        spec = self.piece.arguments[self.positions[self.placeholders.index(_name(tensor))]]
        size: Any = dim
        self.values[node] = spec.shape[size]

    def buffer(self, node: Node) -> None:
        dtype: Any = node.kwargs["dtype"]
        shape, stride = (self.exprs(part) for part in node.args)
        self.tensors[node.name] = Placed(node.name, Geometry(NAMES[dtype], shape, stride))
        self.buffers.append(node.name)

    def view(self, node: Node) -> None:
        of, shape, stride, offset = node.args
        base = self.tensors[_name(of)]
        geometry = Geometry(
            base.geometry.dtype, self.exprs(shape), self.exprs(stride), self.expr(offset)
        )
        self.tensors[node.name] = Placed(base.base, geometry)

    def product(self, node: Node) -> None:
        if any(node.kwargs.get(key, 1) != 1 for key in ("alpha", "beta")):
            raise refused(self.where, str(node.target), "its result or its addend is scaled")
        a, w = (_name(argument) for argument in node.args[-2:])
        c = _name(node.args[0]) if len(node.args) == 3 else None
        d = _name(node.kwargs["out"])
        (m, k), n = self.tensors[a].geometry.shape, self.tensors[w].geometry.shape[1]
        if not isinstance(n, int) or not isinstance(k, int):
            raise refused(self.where, str(node.target), f"its weight has sizes {k} and {n}")
        for name, shape in ((a, (m, k)), (d, (m, n)), *(((c, (m, n)),) if c else ())):
            self._check_dense(name, shape, node)
        if not is_dense((n, k), self.tensors[w].geometry.stride[::-1]):
            raise refused(self.where, str(node.target), f"its weight {w} is not dense [n, k]")
        operands = (a, w, d, *((c,) if c else ()))
        for name in operands:
            self._check_start(name, node)
        dtypes = {self.tensors[name].geometry.dtype for name in operands}
        if len(dtypes) != 1:
            raise refused(self.where, str(node.target), f"it mixes {', '.join(sorted(dtypes))}")
        self.work.append(Product(a, w, c, d, checked(m), n, k, dtypes.pop()))

    def _check_dense(self, name: str, shape: Sequence[Expr], node: Node) -> None:
        found = self.tensors[name].geometry
        if list(found.shape) != list(shape) or not is_dense(found.shape, found.stride):
            why = f"{name} is {list(found.shape)} by {list(found.stride)}, not dense {list(shape)}"
            raise refused(self.where, str(node.target), why)

    def _check_start(self, name: str, node: Node) -> None:
        found = self.tensors[name].geometry
        start = times(SIZES[found.dtype], found.offset)
        if divisor(start) % ALIGNMENT:
            why = f"{name} starts at byte {start} of its memory, not at a multiple of {ALIGNMENT}"
            raise refused(self.where, str(node.target), why)

    def operator(self, node: Node) -> None:
        """An operator of ours: one launch, whose results are buffers of the piece."""
        call = own_call(node, self.tensors, self.where)
        work, results = own_launch(node, call, self.arch)
        for name, geometry in results.items():
            self.tensors[name] = Placed(name, geometry)
            self.buffers.append(name)
        if len(results) == 1:
            self.tensors[node.name] = self.tensors[next(iter(results))]
        self.work.append(work)

    def item(self, node: Node) -> None:
        """One of several results of a call."""
        of, index = node.args
        self.tensors[node.name] = self.tensors[f"{_name(of)}.{index}"]

    def launch(self, node: Node) -> None:
        key, grid, given, written = node.args
        arguments: Any = given
        kernel = self.compiled.kernels[str(key)]
        bound, access = {}, {}
        for name, kind in kernel.parameters:
            if name not in arguments:
                raise refused(
                    self.where, f"kernel {kernel.function}", f"nothing is bound to {name}"
                )
            bound[name] = self._argument(arguments[name], kind, kernel.function)
            if kind.startswith("*"):
                access[name] = _access(name, written)
        x, y, z = (checked(size) for size in self.exprs(grid))
        made = Launch(kernel, (x, y, z), bound, access)
        self.work.append(as_product(made) or made)

    def _argument(self, value: Any, kind: str, function: str) -> Any:
        if kind.startswith("*"):
            if not isinstance(value, Node) or value.name not in self.tensors:
                raise refused(self.where, f"kernel {function}", f"{value!r:.40} is no tensor")
            return value.name
        if kind in ("fp32", "fp64"):
            if not isinstance(value, (int, float)):
                raise refused(self.where, f"kernel {function}", f"{value!r:.40} is no number")
            return float(value)
        return checked(self.expr(value))


def _divides(node: Node) -> bool:
    """Whether a quotient: a launch is split by one where it may be larger than a grid can be."""
    return node.target in (operator.floordiv, operator.mod)


def _access(name: str, written: Any) -> str:
    """What a kernel does through a pointer; Inductor's own outputs are written only."""
    if name not in written:
        return "r"
    return "w" if name.startswith("out_ptr") else "rw"


def _name(value: Any) -> str:
    return str(value.name)


HANDLERS: Mapping[Any, Callable[[_Reader, Node], None]] = {
    "placeholder": _Reader.placeholder,
    "output": _Reader.output,
    aten.sym_size.int: _Reader.size,
    torch.empty_strided: _Reader.buffer,
    torch.as_strided: _Reader.view,
    torch.sym_sum: _Reader.total,
    operator.pow: _Reader.power,
    operator.getitem: _Reader.item,
    aten.mm.out: _Reader.product,
    aten.addmm.out: _Reader.product,
    launch: _Reader.launch,
}
