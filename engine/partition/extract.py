"""One part of a traced graph as a graph of its own, in out-buffer form."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr
from vcc.engine.partition.assign import Part
from vcc.engine.partition.sizes import build, to_expr
from vcc.engine.torch_shim.fake import expression
from vcc.engine.torch_shim.nodes import is_size, is_symbolic


@dataclass(frozen=True, slots=True)
class Extracted:
    """A part's graph: placeholders are `inputs`, then one buffer per entry of `outputs`.

    The graph copies each result into its buffer and returns nothing.
    """

    graph: GraphModule
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


Carriers = Mapping[sympy.Symbol, tuple[Node, int]]
"""For each size symbol a step input and the dimension of it that has this size."""


def extract(part: Part, carriers: Carriers, buffers: Collection[Node] = ()) -> Extracted:
    """Copy a part into a graph of its own.

    Sizes are rebuilt from the tensors that the part takes; where none of them carries a size
    the step input that does is added.

    Args:
        part: of the assignment.
        carriers: the step inputs that have each size.
        buffers: allocations that became buffers of the step. One that is made like a tensor
            (`new_empty`) takes its sizes alone: the tensor need not leave the part for it.
    """
    members = frozenset(part.nodes)
    outputs = tuple(n for n in part.nodes if _leaves(n, members.union(buffers)))
    inputs = _with_carriers(_tensor_inputs(part.nodes, members), part.nodes, outputs, carriers)
    copier = _Copier(inputs, outputs)
    for node in part.nodes:
        copier.copy(node)
    copier.finish()
    root = part.nodes[0].graph.owning_module or torch.nn.Module()
    return Extracted(GraphModule(root, copier.graph), inputs, outputs)


def _leaves(node: Node, stays: frozenset[Node]) -> bool:
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    return any(u not in stays and not is_symbolic(u) for u in node.users)


def _tensor_inputs(nodes: Sequence[Node], members: frozenset[Node]) -> list[Node]:
    found: dict[Node, None] = {}
    for node in nodes:
        for source in node.all_input_nodes:
            if source not in members and not is_symbolic(source):
                found[source] = None
    return list(found)


def _with_carriers(
    inputs: list[Node], nodes: Sequence[Node], outputs: Sequence[Node], carriers: Carriers
) -> tuple[Node, ...]:
    needed = {s for node in nodes for s in _symbols_used(node)}
    # A size that only stands inside an expression (T * T) would have to be solved for.
    needed |= {s for node in (*inputs, *outputs) for s in _symbols_in(node.meta["val"])}
    carried = set(_direct_symbols(inputs))
    for symbol in sorted(needed - carried, key=str):
        if symbol not in carriers:
            raise CompileError(
                f"size {symbol} is not the size of any input of the step",
                "it depends on data, so no buffer can be declared for it",
                "keep the op that makes it inside a splitting op",
            )
        inputs.append(carriers[symbol][0])
    # Sizes are read from inputs in order, so those that name a size come before those with T * T.
    return tuple(dict.fromkeys(sorted(inputs, key=_has_compound_size)))


def _symbols_used(node: Node) -> set[sympy.Symbol]:
    """Symbols of the sizes that a node takes, also through numbers computed from sizes."""
    found: set[sympy.Symbol] = set()
    for source in node.all_input_nodes:
        if is_size(source):
            found |= expression(source.meta["val"]).free_symbols
        elif is_symbolic(source):
            found |= _symbols_used(source)
    return found


def _has_compound_size(node: Node) -> bool:
    sizes = [expression(size) for size in node.meta["val"].shape]
    return any(size.free_symbols and not size.is_Symbol for size in sizes)


def _symbols_in(value: torch.Tensor) -> set[sympy.Symbol]:
    return {s for size in value.shape for s in expression(size).free_symbols}


def _direct_symbols(inputs: Sequence[Node]) -> dict[sympy.Symbol, tuple[Node, int]]:
    found: dict[sympy.Symbol, tuple[Node, int]] = {}
    for node in inputs:
        for dim, size in enumerate(node.meta["val"].shape):
            symbol = expression(size)
            if symbol.is_Symbol:
                found.setdefault(symbol, (node, dim))
    return found


class _Copier:
    """Copies nodes into a new graph; names are given by position, so equal parts look equal."""

    def __init__(self, inputs: tuple[Node, ...], outputs: tuple[Node, ...]) -> None:
        self.graph = Graph()
        self._sizes: dict[str, Node] = {}
        self._carriers = _direct_symbols(inputs)
        self._count = 0
        self._copies = {n: self.graph.placeholder(f"a{i}") for i, n in enumerate(inputs)}
        self._buffers = {n: self.graph.placeholder(f"o{i}") for i, n in enumerate(outputs)}

    def copy(self, node: Node) -> None:
        args = map_arg(node.args, self._argument)
        kwargs = map_arg(node.kwargs, self._argument)
        self._copies[node] = self._create(node.op, node.target, args, kwargs)

    def finish(self) -> None:
        for node, buffer in self._buffers.items():
            self._call(torch.ops.aten.copy_.default, buffer, self._copies[node])
        self.graph.output(())
        self.graph.lint()

    def _argument(self, node: Node) -> Any:
        if is_size(node) and node not in self._copies:
            return self._size(expression(node.meta["val"]))
        if node not in self._copies:  # a number or condition computed from sizes
            self.copy(node)
        return self._copies[node]

    def _size(self, size: sympy.Expr) -> Any:
        symbols = {str(s): s for s in size.free_symbols}
        names = {s: name for name, s in symbols.items()}
        return build(to_expr(size, names), lambda name: self._leaf(symbols[name]), self._call)

    def _leaf(self, symbol: sympy.Symbol) -> Node:
        key = str(symbol)
        if key not in self._sizes:
            node, dim = self._carriers[symbol]
            self._sizes[key] = self._call(torch.ops.aten.sym_size.int, self._copies[node], dim)
        return self._sizes[key]

    def _call(self, function: Callable[..., Any], *args: Any) -> Node:
        return self._create("call_function", function, args, {})

    def _create(self, op: str, target: Any, args: Any, kwargs: Any) -> Node:
        self._count += 1
        return self.graph.create_node(op, target, args, kwargs, name=f"v{self._count - 1}")


def shape_of(value: torch.Tensor, names: Mapping[sympy.Symbol, str]) -> tuple[Expr, ...]:
    """A tensor's sizes as expressions over `names`."""
    return tuple(to_expr(expression(size), names) for size in value.shape)
