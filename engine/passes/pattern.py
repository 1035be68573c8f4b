"""Patterns over graph nodes: captures, and for a near-match the reason why it is none.

    NORM = Op((aten.mul.Tensor,), Capture("x"), Op((aten.rsqrt.default,), ...))
    found = match(NORM, node)          # Match(captures, nodes) or Miss(reason, depth)

A pattern is data: a tree that is laid over a node and its sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from vcc.engine.torch_shim.nodes import call_arguments, mutated_arguments, overload_name


@dataclass(frozen=True, slots=True)
class Capture:
    """Anything, kept under a name; a name that comes again must be the same thing.

    Args:
        name: key in `Match.captures`.
        where: a condition on what is captured: "" when it holds, or the reason why not.
    """

    name: str
    where: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True)
class Const:
    """A plain value equal to `value`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Item:
    """`of[index]`: one tensor of a call that returns several.

    Args:
        of, index: the call and the place in its result.
        name: capture the item itself.
        shared: others may read it too.
    """

    of: Pattern
    index: int
    name: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of as many things, each of which fits its pattern."""

    items: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """The first of several patterns that fits here."""

    options: tuple[Pattern, ...]


class Op:
    """A call of one of `targets`; patterns for its first arguments in schema order.

    Args:
        targets: overloads (`torch.ops.aten.mul.Tensor`).
        args: patterns; arguments behind them may be anything.
        name: capture the call itself.
        commutes: the first two arguments may be exchanged.
        shared: others may read its result too; otherwise such a node is a near-match, as
            the replacement would compute it twice. The root's result may always be read.
    """

    __slots__ = ("args", "commutes", "name", "shared", "targets")

    def __init__(
        self,
        targets: tuple[Any, ...],
        *args: Pattern,
        name: str = "",
        commutes: bool = False,
        shared: bool = False,
    ) -> None:
        self.targets, self.args, self.name = targets, args, name
        self.commutes, self.shared = commutes, shared


Pattern = Capture | Const | Either | Item | Listed | Op


@dataclass(frozen=True, slots=True)
class Match:
    """A pattern found.

    Attributes:
        captures: by name.
        nodes: the calls it covers, root first.
    """

    captures: Mapping[str, Any]
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Miss:
    """A pattern not found.

    Attributes:
        reason: the first thing that differs.
        depth: how many calls did fit before; a near-match has at least one.
    """

    reason: str
    depth: int


@dataclass(slots=True)
class _State:
    captures: dict[str, Any] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    covered: dict[Node, Op | Item] = field(default_factory=dict)


class _Differs(Exception):
    """A node does not fit."""


def match(pattern: Op, root: Node) -> Match | Miss:
    """Lay a pattern over a node and its sources."""
    state = _State()
    try:
        _fit(pattern, root, state)
        _check_readers(root, state)
        _check_writes(state)
    except _Differs as differs:
        return Miss(str(differs), len(state.nodes))
    return Match(dict(state.captures), tuple(state.nodes))


def matches(pattern: Op, graph: Any, least: int = 1) -> tuple[list[Match], list[str]]:
    """All places of a pattern in a graph, and the near-matches as `node: reason`.

    Args:
        pattern: what to find.
        graph: an fx graph.
        least: calls that must fit for a miss to count as a near-match.
    """
    found, near = [], []
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in pattern.targets:
            continue
        result = match(pattern, node)
        if isinstance(result, Match):
            found.append(result)
        elif result.depth >= least:
            near.append(f"{node.name}: {result.reason}")
    return found, near


def _fit(pattern: Pattern, given: Any, state: _State) -> None:
    _FIT[type(pattern)](pattern, given, state)


def _fit_capture(pattern: Capture, given: Any, state: _State) -> None:
    reason = pattern.where(given) if pattern.where else ""
    if reason:
        raise _Differs(reason)
    _keep(pattern.name, given, state)


def _keep(name: str, given: Any, state: _State) -> None:
    """Capture under a name; one that comes again must be the same thing."""
    if not name:
        return
    before = state.captures.setdefault(name, given)
    if before is not given and before != given:
        raise _Differs(f"{name} is {given} here and {before} elsewhere")


def _fit_const(pattern: Const, given: Any, state: _State) -> None:
    same = not isinstance(given, Node) and given == pattern.value
    # True is no 1 and 1.0 is: a number may be written either way, a switch may not.
    if not same or isinstance(given, bool) != isinstance(pattern.value, bool):
        raise _Differs(f"a value is {given}, not {pattern.value}")


def _fit_item(pattern: Item, given: Any, state: _State) -> None:
    if not isinstance(given, Node) or getattr(given.target, "__name__", "") != "getitem":
        raise _Differs(f"{given} is not an item of a call")
    if given.args[1] != pattern.index:
        raise _Differs(f"{given} is item {given.args[1]}, not {pattern.index}")
    state.nodes.append(given)
    state.covered[given] = pattern
    _keep(pattern.name, given, state)
    _fit(pattern.of, given.args[0], state)


def _fit_listed(pattern: Listed, given: Any, state: _State) -> None:
    if not isinstance(given, (list, tuple)) or len(given) != len(pattern.items):
        raise _Differs(f"{given} is no list of {len(pattern.items)}")
    for inner, one in zip(pattern.items, given, strict=True):
        _fit(inner, one, state)


def _fit_one_of(pattern: Either, given: Any, state: _State) -> None:
    _first_fit([((option, given),) for option in pattern.options], state)


def _fit_op(pattern: Op, given: Any, state: _State) -> None:
    wanted = " or ".join(overload_name(target) or str(target) for target in pattern.targets)
    if not isinstance(given, Node) or given.op != "call_function":
        raise _Differs(f"{given} is an input, where {wanted} is wanted")
    if given.target not in pattern.targets:
        raise _Differs(f"{given} calls {overload_name(given.target)}, where {wanted} is wanted")
    state.nodes.append(given)
    state.covered[given] = pattern
    _keep(pattern.name, given, state)
    arguments = call_arguments(given)
    if len(arguments) < len(pattern.args):
        raise _Differs(f"{given} has {len(arguments)} arguments, of {len(pattern.args)}")
    if pattern.commutes:
        _fit_either(pattern, arguments, state)
        return
    for inner, argument in zip(pattern.args, arguments, strict=False):
        _fit(inner, argument, state)


def _fit_either(pattern: Op, arguments: list[Any], state: _State) -> None:
    """In the order given, else exchanged."""
    first, second, *rest = arguments
    orders = ((first, second, *rest), (second, first, *rest))
    _first_fit([tuple(zip(pattern.args, order, strict=False)) for order in orders], state)


def _first_fit(ways: Sequence[Sequence[tuple[Pattern, Any]]], state: _State) -> None:
    """The first way in which all pairs fit; of several misses the deepest is told."""
    misses: list[tuple[int, str]] = []
    for pairs in ways:
        trial = _State(dict(state.captures), list(state.nodes), dict(state.covered))
        try:
            for inner, given in pairs:
                _fit(inner, given, trial)
        except _Differs as differs:
            misses.append((len(trial.nodes), str(differs)))
            continue
        state.captures, state.nodes, state.covered = trial.captures, trial.nodes, trial.covered
        return
    depth, reason = max(misses, key=lambda miss: miss[0])
    state.nodes.extend(state.nodes[:1] * (depth - len(state.nodes)))
    raise _Differs(reason)


def _check_readers(root: Node, state: _State) -> None:
    """What is inside may be read from inside only."""
    inside = frozenset(state.nodes)
    for node, pattern in state.covered.items():
        if node is root or pattern.shared:
            continue
        other = next((user for user in node.users if user not in inside), None)
        if other is not None:
            raise _Differs(f"{node} is also read by {other}")


def _check_writes(state: _State) -> None:
    """Nothing may be written in place between the first call and the last."""
    inside, nodes = frozenset(state.nodes), list(state.nodes[0].graph.nodes)
    places = [nodes.index(node) for node in inside]
    for node in nodes[min(places) : max(places)]:
        if node not in inside and node.op == "call_function" and mutated_arguments(node):
            raise _Differs(f"{node} writes in place between its calls")


_FIT: Mapping[type, Callable[[Any, Any, _State], None]] = {
    Capture: _fit_capture,
    Const: _fit_const,
    Either: _fit_one_of,
    Listed: _fit_listed,
    Item: _fit_item,
    Op: _fit_op,
}
