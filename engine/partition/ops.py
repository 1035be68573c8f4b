"""Splitting ops: which names there are, and what a call of one takes and returns."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from vcc.cache.errors import CompileError, ConfigError
from vcc.engine.config.checks import suggestion
from vcc.engine.torch_shim.nodes import (
    absent_tensors,
    call_arguments,
    is_registered,
    is_splitting,
    keyword_only,
    overload_name,
)

PLAIN = (bool, int, float, str, type(None))


def absent(graph: Graph, names: Sequence[str]) -> tuple[str, ...]:
    """The splitting ops that the graph does not call.

    Raises:
        ConfigError: no operator of that name exists at all.
    """
    targets = {node.target for node in graph.nodes if node.op == "call_function"}
    missing = tuple(n for n in names if not any(is_splitting(t, frozenset({n})) for t in targets))
    called = sorted(filter(None, map(overload_name, targets)))
    for name in missing:
        if not is_registered(name):
            raise ConfigError(
                f"splitting op {name} does not exist",
                "no operator of this name is registered",
                suggestion(name, dict.fromkeys(n.removesuffix(".default") for n in called)),
            )
    return missing


def arguments_of(op: Node, known: Container[str]) -> list[Any]:
    """The arguments of a call: names of the step's values, or literals as one-item lists.

    Optional tensors at the end that are not given are left out.

    Raises:
        CompileError: an argument that a step program cannot hold.
    """
    for name in keyword_only(op):
        raise _refused(op, f"{name} by keyword only")
    given = call_arguments(op)
    given = given[: len(given) - absent_tensors(op.target, given)]
    return [_argument(op, value, known) for value in given]


def _argument(op: Node, value: Any, known: Container[str]) -> Any:
    if isinstance(value, Node) and value.name in known:
        return value.name
    if isinstance(value, PLAIN):
        return [value]
    raise _refused(op, f"{value!r:.80}")


def _refused(op: Node, what: str) -> CompileError:
    return CompileError(
        f"splitting op {op.target} takes {what}",
        "only tensors of the step and plain numbers, by position, reach a splitting op",
        "give the op tensors and constants only",
    )


def results_of(op: Node, items: Sequence[Node]) -> dict[str, torch.Tensor]:
    """The values that a call returns, by name and in order; empty where nobody uses them.

    Args:
        op: the call.
        items: its getitems. An item of a tuple that is never read gets a name of its own: the
            operator still makes it.

    Raises:
        CompileError: a result that is not a tensor.
    """
    value = op.meta.get("val")
    if not op.users or value is None:
        return {}
    if isinstance(value, torch.Tensor):
        return {op.name: value}
    names = {item.args[1]: item.name for item in items}
    results = {names.get(i, f"{op.name}_unread{i}"): one for i, one in enumerate(value)}
    if len(names) < len(items) or not all(isinstance(v, torch.Tensor) for v in results.values()):
        raise CompileError(
            f"splitting op {op.target} returns {value!r:.80}",
            "each result must be one tensor that is taken once",
            "return tensors only, or write results into arguments",
        )
    return results
