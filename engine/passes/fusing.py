"""What all fusions share: laying patterns over a graph, and counting what a match saves."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.engine.ops.register import load_ops
from vcc.engine.passes.base import Outcome, PassContext
from vcc.engine.passes.memory import memory_of
from vcc.engine.passes.pattern import Match, Miss, Op, match
from vcc.engine.passes.rewrite import bytes_of, calls, value
from vcc.engine.torch_shim.fake import expression
from vcc.engine.torch_shim.nodes import is_pure, is_symbolic
from vcc.engine.torch_shim.twins import may_view
from vcc.engine.types import Saved

load_ops()  # patterns name operators when their modules are imported

aten = torch.ops.aten

Build = Callable[[Match], str]
"""Puts the fused call in place of a match; returns why not, or nothing when it did."""

RESHAPES = (
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
)

MOST_CALLS = 1 << 20
"""A pattern that fits and is refused all the same is nearer than any that does not fit."""

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
"""Element types that the fused operators take."""


def fuse(graph: GraphModule, forms: Sequence[tuple[Op, Build]], least: int = 2) -> Outcome:
    """Rewrite every place where one of several patterns fits, from the end of the graph.

    Args:
        graph: changed in place.
        forms: patterns in the order in which they are tried at a node, and what rewrites a match.
        least: calls that must fit for a miss to be told as a near-match.
    """
    made, refused, saved = 0, [], Saved()
    targets = dict.fromkeys(target for pattern, _ in forms for target in pattern.targets)
    for root in reversed(list(calls(graph.graph, *targets))):
        if is_pure(root) and not root.users:
            continue  # dead, or gone with a match behind it
        done = _rewritten(root, forms, least)
        if isinstance(done, Saved):
            made, saved = made + 1, saved + done
        elif done:
            refused.append(f"{root.name}: {done}")
    return Outcome(made, tuple(reversed(refused)), saved)


def _rewritten(root: Node, forms: Sequence[tuple[Op, Build]], least: int) -> Saved | str:
    """What the rewrite of a node saves; or why the nearest pattern does not fit, if it is near."""
    misses = [Miss("", least)]
    for pattern, build in forms:
        found = match(pattern, root) if root.target in pattern.targets else misses[0]
        if isinstance(found, Miss):
            misses.append(found)
            continue
        gain = saved_by(found)
        reason = build(found)
        if not reason:
            return gain
        misses.append(Miss(reason, MOST_CALLS))
    return max(reversed(misses), key=lambda miss: miss.depth).reason


def saved_by(found: Match) -> Saved:
    """What is inside is neither written nor read again; one launch is left of all."""
    root, covered = found.nodes[0], list(dict.fromkeys(found.nodes))
    inner = [node for node in covered if _holds_data(node) and _inside(node, found)]
    launches = sum(map(_moves_data, covered))
    return Saved(sum(2 * bytes_of(node) for node in inner if node is not root), launches - 1)


def _moves_data(node: Node) -> bool:
    if node.target is operator.getitem or node.target in RESHAPES or is_symbolic(node):
        return False
    source = node.args[0] if node.args else None
    if not may_view(node.target) or not isinstance(source, Node):
        return True
    mine, its = memory_of(node), memory_of(source)
    return mine is not None and its is not None and mine != its  # a cast may copy, or not


def _holds_data(node: Node) -> bool:
    """Whether a tensor has memory of its own, made by this call or by the one it is an item of."""
    made = node.args[0] if node.target is operator.getitem else node
    return isinstance(made, Node) and _moves_data(made)


def _inside(node: Node, found: Match) -> bool:
    """Whether the result of a call is read by the match alone, through views too."""
    inside = frozenset(found.nodes)
    return all(user in inside if _moves_data(user) else _inside(user, found) for user in node.users)


def switched_off(context: PassContext, op: str) -> str:
    """Why calls of a custom op are not made here; empty when they are."""
    if context.ops and op not in context.ops:
        return f"custom op {op} is switched off"
    return ""


def a_vector(given: Any) -> str:
    """The condition of a capture: a tensor of one dimension."""
    shape = value(given).shape if isinstance(given, Node) else None
    return "" if shape is not None and len(shape) == 1 else f"{given} is no vector"


def a_number(given: Any) -> str:
    """The condition of a capture: a plain number."""
    plain = isinstance(given, (int, float)) and not isinstance(given, bool)
    return "" if plain else f"{given} is no plain number"


def a_tensor(given: Any) -> str:
    """The condition of a capture: a floating-point tensor of the graph."""
    kept = value(given) if isinstance(given, Node) else None
    floats = isinstance(kept, torch.Tensor) and kept.dtype in FLOATS
    return "" if floats else f"{given} is no tensor of floats"


def other_dtype(of: Node, like: Node) -> str:
    """Why two tensors do not go together; empty when their dtypes are equal."""
    mine, its = value(of).dtype, value(like).dtype
    return "" if mine == its else f"{of} is {_named(mine)}, where {like} is {_named(its)}"


def loose_rows(node: Node) -> str:
    """Why kernels cannot take a tensor as rows; empty when its last dimension is dense."""
    dense = expression(value(node).stride()[-1]) == 1
    return "" if dense else f"{node} is not dense in its last dimension"


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def place_of(item: Node) -> int:
    """Which of several results an item is."""
    index: Any = item.args[1]
    return int(index)


def comes_before(node: Any, place: Node) -> bool:
    """Whether a value is there at a place of the graph."""
    if not isinstance(node, Node):
        return True
    order = {one: index for index, one in enumerate(place.graph.nodes)}
    return order[node] < order[place]


def moved_before(node: Node, place: Node) -> bool:
    """Whether a value is there at a place; a view of what is there is moved up to it."""
    if comes_before(node, place):
        return True
    view = node.op == "call_function" and not _moves_data(node)
    if not view or not all(comes_before(one, place) for one in node.all_input_nodes):
        return False
    place.prepend(node)
    return True
