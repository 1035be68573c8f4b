"""Passed to Pieces: the step program and its unique pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node

from vcc.cache.errors import CompileError
from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.graphs.program import VERSION, Call, Program, Role, Symbol, Value
from vcc.engine.partition.assign import Part, PartKind, assign
from vcc.engine.partition.canonical import piece_of
from vcc.engine.partition.extract import Carriers, Extracted, extract
from vcc.engine.partition.measure import AS_TRACED, Measure
from vcc.engine.partition.ops import arguments_of, results_of
from vcc.engine.torch_shim.fake import expression
from vcc.engine.torch_shim.nodes import mutated_arguments, overload_name
from vcc.engine.types import Piece, Pieces, Placeholder, Traced


def split(
    traced: Traced, splitting_ops: Sequence[str], options: Sequence[tuple[str, str]]
) -> Pieces:
    """Cut a traced graph at `splitting_ops` and keep each distinct piece once.

    Args:
        traced: the graph after the passes.
        splitting_ops: names `ns::op` (all overloads) or `ns::op.overload`.
        options: labels and values of everything else that steers code generation.

    Raises:
        CompileError: a size or a value cannot be handed from piece to piece.
    """
    graph = traced.graph.graph
    assignment = assign(graph, frozenset(splitting_ops))
    carriers = _carriers(graph, traced.placeholders)
    measure = Measure(_of_one_value(carriers, traced.ranges))
    writer = _Writer(traced, carriers, assignment.buffers)
    for part in assignment.parts:
        if part.kind is PartKind.SPLIT:
            writer.add_op(part)
        else:
            extracted = extract(part, carriers, assignment.buffers, measure)
            writer.add_piece(extracted, piece_of(extracted, traced.ranges, options))
    return writer.finish()


def _carriers(graph: torch.fx.Graph, placeholders: Sequence[Placeholder]) -> Carriers:
    inputs = frozenset(p.name for p in placeholders if p.role == "input")
    found: dict[sympy.Symbol, tuple[Node, int]] = {}
    for node in graph.nodes:
        if node.op != "placeholder" or node.name not in inputs:
            continue
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            symbol = expression(size)
            if symbol.is_Symbol:
                found.setdefault(symbol, (node, dim))
    return found


def _of_one_value(
    carriers: Carriers, ranges: Mapping[str, tuple[int, int]]
) -> dict[sympy.Symbol, int]:
    found = {symbol: ranges[str(symbol)] for symbol in carriers if str(symbol) in ranges}
    return {symbol: low for symbol, (low, high) in found.items() if low == high}


class _Writer:
    """Collects values and calls of the program while parts are visited in order."""

    def __init__(self, traced: Traced, carriers: Carriers, buffers: Sequence[Node]) -> None:
        self._traced = traced
        self._carriers = carriers
        self._names = {symbol: f"s{index}" for index, symbol in enumerate(carriers)}
        self._values: dict[str, Value] = {}
        self._calls: list[Call] = []
        self._pieces: dict[str, Piece] = {}
        self._counts: Counter[str] = Counter()
        nodes = {n.name: n for n in traced.graph.graph.nodes if n.op == "placeholder"}
        for placeholder in traced.placeholders:
            self._add_placeholder(placeholder, nodes[placeholder.name])
        for node in buffers:
            self._add_buffer(node)

    def add_piece(self, extracted: Extracted, piece: Piece) -> None:
        for node in extracted.outputs:
            self._add_buffer(node)
        outs = [n.name for n in extracted.outputs]
        args: list[Any] = [n.name for n in extracted.inputs]
        self._calls.append(Call("piece", piece.id, args + outs, outs))
        self._pieces.setdefault(piece.id, piece)
        self._counts[piece.id] += 1

    def add_op(self, part: Part) -> None:
        op, *items = part.nodes
        results = results_of(op, items)
        for name, value in results.items():
            self._add(name, value, "buffer", name)
        outs = list(results) or [node.name for node in mutated_arguments(op)]
        args = arguments_of(op, self._values)
        self._calls.append(Call("op", overload_name(op.target) or "", args, outs, bool(results)))

    def finish(self) -> Pieces:
        outputs = self._outputs()
        program = Program(
            VERSION, self._symbols(), list(self._values.values()), self._calls, outputs
        )
        used = self._used(program)
        values = [v for v in program.values if v.name in used]
        program = Program(VERSION, program.symbols, values, program.calls, outputs)
        return Pieces(program, tuple(self._pieces.values()), dict(self._counts))

    def _used(self, program: Program) -> frozenset[str]:
        named = {a for call in program.calls for a in call.args if isinstance(a, str)}
        named.update(n for call in program.calls for n in call.outs)
        named.update(program.outputs, (s.source for s in program.symbols))
        named.update(v.name for v in program.values if v.role == "input")
        return frozenset(named)

    def _add_placeholder(self, placeholder: Placeholder, node: Node) -> None:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise CompileError(
                f"input {placeholder.name} is not a tensor",
                f"it is {type(value).__name__}",
                "declare tensor inputs only",
            )
        self._add(node.name, value, placeholder.role, placeholder.target)

    def _add_buffer(self, node: Node) -> None:
        self._add(node.name, node.meta["val"], "buffer", node.name)

    def _add(self, name: str, value: torch.Tensor, role: Role, target: str) -> None:
        shape = list(AS_TRACED.shape(value, self._names))
        if value.dtype not in NAMES:
            raise CompileError(
                f"{name} has element type {value.dtype}",
                f"a step holds {', '.join(NAMES.values())}",
                "keep other types inside one piece, or inside a splitting op",
            )
        self._values[name] = Value(name, role, NAMES[value.dtype], shape, target)

    def _symbols(self) -> list[Symbol]:
        found = []
        for symbol, (node, dim) in self._carriers.items():
            low, high = self._traced.ranges[str(symbol)]
            found.append(Symbol(self._names[symbol], low, high, node.name, dim))
        return found

    def _outputs(self) -> list[str]:
        output = next(n for n in self._traced.graph.graph.nodes if n.op == "output")
        leaves = [n for n in output.args[0] if n is not None]
        for node in leaves:
            if not isinstance(node, Node) or node.name not in self._values:
                raise CompileError(
                    f"the step returns {node!r:.60}, which no piece produces",
                    "outputs must be tensors computed by the step",
                    "return tensors only",
                )
        return [node.name for node in leaves]
