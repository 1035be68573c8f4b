"""A piece compiled for a target: results are left where they are made, without a copy.

A piece of the partition copies each result into a buffer of the caller. Here it returns them, and
the caller's value lies where the result does: a matrix product writes straight into the logits,
and the values of a fused QKV product stay in it as a strided view, for operators that take one.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from vcc.cache.errors import CompileError, VccError, quoted
from vcc.engine.graphs.expr import MOST
from vcc.engine.graphs.planner.arithmetic import SIZES, divisor, is_dense, times
from vcc.engine.graphs.planner.attention import place_attention
from vcc.engine.graphs.planner.biased import widen_results
from vcc.engine.graphs.planner.filters import turned_in
from vcc.engine.graphs.planner.largest import place_largest
from vcc.engine.graphs.planner.products import place_products
from vcc.engine.graphs.planner.reader import read_piece
from vcc.engine.graphs.planner.residuals import add_in_products
from vcc.engine.graphs.planner.types import ALIGNMENT, Geometry, PlannedPiece
from vcc.engine.partition.canonical import fake_arguments
from vcc.engine.torch_shim.fx_wrapper import compile_to_graph
from vcc.engine.torch_shim.profiles import DeviceProfile
from vcc.engine.types import Piece


def compile_piece(
    piece: Piece,
    profile: DeviceProfile,
    options: Mapping[str, Any],
    *,
    copied: Collection[int] = (),
    strided: Collection[int] = (),
    weights: Collection[int] = (),
    last: bool = False,
) -> PlannedPiece:
    """Compile one unique piece for the installed device and read its work.

    Args:
        piece: the piece.
        profile: the device.
        options: Inductor's, of `cuda_options`.
        copied: outputs (by index) that need memory of their own.
        strided: outputs that may be views with a stride a row.
        weights: arguments that may lie channels last from their load on.
        last: what it gives are results of a module.

    Raises:
        CompileError: it does not compile, or holds what a node table cannot express.
    """
    for symbol in piece.symbols:
        if symbol.high > MOST:
            raise CompileError(
                f"size {symbol.name} of piece {piece.id[:12]} has no maximum",
                "the width of indices would be guessed from an example",
                "declare one: --shape name=1-8x128",
            )
    kept = frozenset(copied)
    while True:
        planned = _compiled(piece, profile, options, kept, weights, last)
        wrong = _wrong(piece, planned, kept, strided)
        if not wrong:
            return planned
        kept |= wrong


def _compiled(
    piece: Piece,
    profile: DeviceProfile,
    options: Mapping[str, Any],
    kept: frozenset[int],
    weights: Collection[int],
    last: bool,
) -> PlannedPiece:
    first = len(piece.arguments) - piece.outputs
    arguments = [
        f"{index}" if index < first or index - first in kept else None
        for index in range(len(piece.arguments))
    ]
    fakes = fake_arguments(piece)
    positions = [index for index, name in enumerate(arguments) if name is not None]
    given, turned = [fakes[index] for index in positions], set[int]()

    def place(graph: Graph) -> None:
        filters = turned_in(graph, positions, weights)
        turned.update(filters.values())
        _place(graph, filters, last)

    try:
        compiled = compile_to_graph(returning(piece, kept), given, options, profile, place)
    except VccError:
        raise
    except Exception as error:
        raise CompileError(
            f"piece {piece.id[:12]} does not compile for {profile.target}",
            quoted(error),
        ) from error
    read = read_piece(piece, compiled, arguments, profile.target)
    return replace(read, turned=tuple(sorted(turned)))


def _place(graph: Graph, turned: Collection[Node], last: bool) -> None:
    """What becomes of attention, routers and products, before Inductor lowers them."""
    place_attention(graph)
    place_largest(graph)
    add_in_products(graph)
    place_products(graph, turned, widen_results(graph) if last else ())


def returning(piece: Piece, kept: Collection[int] = ()) -> GraphModule:
    """The piece's graph with its results returned; those of `kept` go into buffers as before.

    Raises:
        CompileError: a result is written in another way than by one copy.
    """
    graph = copy.deepcopy(piece.graph)
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    buffers = placeholders[len(piece.arguments) - piece.outputs :]
    results = []
    for index, buffer in enumerate(buffers):
        if index in kept:
            continue
        (write,) = buffer.users
        if write.target is not torch.ops.aten.copy_.default:
            raise CompileError(f"output {index} of piece {piece.id[:12]} is not written by a copy")
        results.append(write.args[1])
        graph.graph.erase_node(write)
        graph.graph.erase_node(buffer)
    output = next(node for node in graph.graph.nodes if node.op == "output")
    output.args = (tuple(results),)
    _add_biases_apart(graph)
    graph.recompile()
    return graph


def _add_biases_apart(graph: GraphModule) -> None:
    """`linear(x, w, bias)` as a product and a sum, which fuses into whatever reads it."""
    linear, add = torch.ops.aten.linear.default, torch.ops.aten.add.Tensor
    for node in graph.graph.nodes:
        if node.target is linear and len(node.args) == 3 and node.args[2] is not None:
            with graph.graph.inserting_before(node):
                product = graph.graph.call_function(linear, node.args[:2])
            node.target, node.args = add, (product, node.args[2])


def _wrong(
    piece: Piece, planned: PlannedPiece, kept: frozenset[int], strided: Collection[int]
) -> frozenset[int]:
    """Returned outputs that callers cannot take as they are."""
    specs = piece.arguments[len(piece.arguments) - piece.outputs :]
    wrong = set()
    for index, name in enumerate(planned.outputs):
        if index in kept:
            continue
        placed, fits = planned.tensors[name], is_plain
        if index in strided:
            fits = _fits_rows
        own = placed.base in planned.buffers and placed.geometry.shape == specs[index].shape
        if not own or not fits(placed.geometry):
            wrong.add(index)
    return frozenset(wrong)


def is_plain(geometry: Geometry) -> bool:
    """Whether a tensor lies dense at the start of its memory."""
    return geometry.offset == 0 and is_dense(geometry.shape, geometry.stride)


def _fits_rows(geometry: Geometry) -> bool:
    return is_plain(geometry) or is_strided(geometry)


def is_strided(geometry: Geometry) -> bool:
    """Whether a matrix has dense rows that start at multiples of the alignment."""
    item = SIZES[geometry.dtype]
    starts = (times(item, geometry.offset), times(item, geometry.stride[0]))
    return (
        len(geometry.shape) == 2
        and geometry.stride[1] == 1
        and isinstance(geometry.stride[0], int)
        and all(divisor(start) % ALIGNMENT == 0 for start in starts)
    )
