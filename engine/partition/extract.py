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
from vcc.engine.partition.assign import Part
from vcc.engine.partition.measure import AS_TRACED, Measure
from vcc.engine.partition.sizes import build, to_expr
from vcc.engine.torch_shim.nodes import is_size, is_symbolic


@dataclass(frozen=True, slots=True)
class Extracted:
    """A part's graph: placeholders are `inputs`, then one buffer per entry of `outputs`.

    The graph copies each result into its buffer and returns nothing. `measure` reads their sizes.
    """

    graph: GraphModule
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    measure: Measure = AS_TRACED


Carriers = Mapping[sympy.Symbol, tuple[Node, int]]
"""For each size symbol a step input and the dimension of it that has this size."""


def extract(
    part: Part,
    carriers: Carriers,
    buffers: Collection[Node] = (),
    measure: Measure = AS_TRACED,
) -> Extracted:
    """Copy a part into a graph of its own.

    Sizes are rebuilt from the tensors that the part takes; where none of them carries a size
    the step input that does is added.

    Args:
        part: of the assignment.
        carriers: the step inputs that have each size.
        buffers: allocations that became buffers of the step. One that is made like a tensor
            (`new_empty`) takes its sizes alone: the tensor need not leave the part for it.
        measure: reads sizes; those of one value become literals.
    """
    members = frozenset(part.nodes)
    outputs = tuple(n for n in part.nodes if _leaves(n, members.union(buffers)))
    found = _tensor_inputs(part.nodes, members)
    inputs = _with_carriers(found, part.nodes, outputs, carriers, measure)
    copier = _Copier(inputs, outputs, measure)
    for node in part.nodes:
        copier.copy(node)
    copier.finish()
    root = part.nodes[0].graph.owning_module or torch.nn.Module()
    return Extracted(GraphModule(root, copier.graph), inputs, outputs, measure)


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
    inputs: list[Node],
    nodes: Sequence[Node],
    outputs: Sequence[Node],
    carriers: Carriers,
    measure: Measure,
) -> tuple[Node, ...]:
    needed = {s for node in nodes for s in _symbols_used(node, measure)}
    # A size that only stands inside an expression (T * T) would have to be solved for.
    needed |= {s for node in (*inputs, *outputs) for s in measure.symbols(node.meta["val"])}
    carried = set(measure.direct(inputs))
    for symbol in sorted(needed - carried, key=str):
        if symbol not in carriers:
            raise CompileError(
                f"size {symbol} is not the size of any input of the step",
                "it depends on data, so no buffer can be declared for it",
                "keep the op that makes it inside a splitting op",
            )
        inputs.append(carriers[symbol][0])
    # Sizes are read from inputs in order, so those that name a size come before those with T * T.
    return tuple(
        dict.fromkeys(sorted(inputs, key=lambda node: measure.is_compound(node.meta["val"])))
    )


def _symbols_used(node: Node, measure: Measure) -> set[sympy.Symbol]:
    """Symbols of the sizes that a node takes, also through numbers computed from sizes."""
    found: set[sympy.Symbol] = set()
    for source in node.all_input_nodes:
        if is_size(source):
            found |= measure.size(source.meta["val"]).free_symbols
        elif is_symbolic(source):
            found |= _symbols_used(source, measure)
    return found


class _Copier:
    """Copies nodes into a new graph; names are given by position, so equal parts look equal."""

    def __init__(
        self, inputs: tuple[Node, ...], outputs: tuple[Node, ...], measure: Measure
    ) -> None:
        self.graph = Graph()
        self._measure = measure
        self._sizes: dict[str, Node] = {}
        self._carriers = measure.direct(inputs)
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
            return self._size(self._measure.size(node.meta["val"]))
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
