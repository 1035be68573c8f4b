"""Filters of convolutions that lie channels last from their load on: no step lays them out again.

A piece reads such a filter [n, channels, height, width] as memory [n, height, width, channels]
where all that reads it there is convolutions by pixel. The step then holds a weight of that order
beside the plain one, which goes where nobody reads it any more.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec
import torch
from torch.fx import Graph, Node

from vcc.engine.graphs.planner.convolutions import by_pixels, convolves, is_point
from vcc.engine.graphs.planner.types import PlannedPiece
from vcc.engine.graphs.program import Call, Program, Value
from vcc.engine.graphs.table.types import NodeTable, Role
from vcc.engine.models.expressions import ChannelsLast, Tied
from vcc.engine.types import Piece, Pieces, TensorSpec

aten = torch.ops.aten

SUFFIX = "channels_last"
"""Behind the name of a weight; nothing of a module is called so, as a parameter has no parts."""

DIMS = 4


def weights_of(programs: Sequence[Program]) -> dict[str, frozenset[int]]:
    """For each piece the arguments that are weights, of four dimensions, in all of its calls."""
    found: dict[str, frozenset[int]] = {}
    for program in programs:
        values = program.by_name()
        for call in (one for one in program.calls if one.kind == "piece"):
            here = frozenset(i for i, n in enumerate(call.args) if _is_filter(values.get(str(n))))
            found[call.target] = found.get(call.target, here) & here
    return found


def _is_filter(value: Value | None) -> bool:
    return value is not None and value.role == "weight" and len(value.shape) == DIMS


def turned_in(graph: Graph, given: Sequence[int], weights: Collection[int]) -> dict[Node, int]:
    """The placeholders that are read channels last: each with its argument of the piece.

    Args:
        graph: Inductor's, with convolutions as they were traced.
        given: arguments of the piece that are placeholders, in order.
        weights: those that a load can turn.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    if len(placeholders) != len(given):
        return {}
    pairs = zip(placeholders, given, strict=True)
    return {node: index for node, index in pairs if index in weights and _turns(node)}


def _turns(node: Node) -> bool:
    dense = node.meta["val"].is_contiguous()
    return dense and bool(node.users) and all(_takes(user, node) for user in node.users)


def _takes(user: Node, weight: Node) -> bool:
    """Whether a call is a convolution of several taps by pixel, and this its filter alone."""
    if not convolves(user) or not by_pixels(user):
        return False
    taps, padding = weight.meta["val"].shape[2:], user.args[4]
    filters = [one for one in user.all_input_nodes if one is weight]
    named = sum(one is weight for one in user.args)
    alone = user.args[1] is weight and named == len(filters) == 1
    return alone and not is_point(taps, padding)  # type: ignore[arg-type]


def with_turned(pieces: Pieces, planned: Mapping[str, PlannedPiece]) -> Pieces:
    """The pieces of a step with the weights that they read, as they read them."""
    program = pieces.program
    values = program.by_name()
    made: dict[str, Value] = {}
    calls = [_called(call, planned, values, made) for call in program.calls]
    read = {name for call in calls for name in call.args if isinstance(name, str)}
    replaced = {one.name.removesuffix(f"_{SUFFIX}") for one in made.values()}
    gone = replaced - read - set(program.outputs)
    kept = [value for value in program.values if value.name not in gone]
    changed = msgspec.structs.replace(program, values=[*kept, *made.values()], calls=calls)
    return replace(pieces, program=changed)


def _called(
    call: Call,
    planned: Mapping[str, PlannedPiece],
    values: Mapping[str, Value],
    made: dict[str, Value],
) -> Call:
    turned = planned[call.target].turned if call.kind == "piece" else ()
    if not turned:
        return call
    args = list(call.args)
    for index in turned:
        value = _turned(values[str(args[index])])
        args[index] = value.name
        made[value.name] = value
    return msgspec.structs.replace(call, args=args)


def _turned(value: Value) -> Value:
    first, channels, *sizes = value.shape
    return msgspec.structs.replace(
        value,
        name=f"{value.name}_{SUFFIX}",
        target=f"{value.target}.{SUFFIX}",
        shape=[first, *sizes, channels],
    )


def turned_bindings(programs: Iterable[Program], tables: Iterable[NodeTable]) -> dict[str, str]:
    """The binding of every weight that a load turns, by its name in the tables.

    Args:
        programs: of the partition, which have plain weights only.
        tables: made of them after `with_turned`.
    """
    plain = {value.target for program in programs for value in program.of_role("weight")}
    held = {one.target for table in tables for one in table.tensors if one.role is Role.WEIGHT}
    return {
        name: str(ChannelsLast(Tied(name.removesuffix(f".{SUFFIX}"))))
        for name in sorted(held - plain)
    }


def as_read(piece: Piece, turned: Collection[int]) -> Piece:
    """The same piece for arguments that lie turned: what a golden draws for it."""
    if not turned:
        return piece
    arguments = [
        _spec(spec) if index in turned else spec for index, spec in enumerate(piece.arguments)
    ]
    changed = copy.deepcopy(piece.graph)
    placeholders = [node for node in changed.graph.nodes if node.op == "placeholder"]
    last = placeholders[-1]
    for index in turned:
        _turn_back(changed.graph, placeholders[index], last)
    changed.recompile()
    return replace(piece, arguments=tuple(arguments), graph=changed)


def _spec(spec: TensorSpec) -> TensorSpec:
    first, channels, *sizes = spec.shape
    return replace(spec, shape=(first, *sizes, channels))


def _turn_back(graph: Graph, weight: Node, last: Node) -> None:
    with graph.inserting_after(last):
        moved = graph.call_function(aten.permute.default, (weight, [0, 3, 1, 2]))
    with graph.inserting_after(moved):
        dense = graph.call_function(aten.contiguous.default, (moved,))
    weight.replace_all_uses_with(dense, lambda user: user is not moved)
