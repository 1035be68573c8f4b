"""In-place restoration: an operator that makes new tensors becomes its form that writes old ones.

An operator of a library that comes as `ns::op` and `ns::op_` (same arguments, one of them written
for each result) is called in place where the memory it would write dies with the call. A caller
who uses the overload `ns::op.donate` gives that memory up; then it may even be an input of the
step, and reading it afterwards is an error. Operators of torch are left to the compiler, which
does the same inside a piece.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from vcc.cache.errors import CompileError
from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.memory import memory_of, readers, refresh, sharing
from vcc.engine.passes.rewrite import bytes_of, call, calls_all, same_strides, value
from vcc.engine.torch_shim.nodes import StorageKey, call_arguments, is_splitting, overload_name
from vcc.engine.torch_shim.twins import DONATE, Twin, in_place_twin, is_donating
from vcc.engine.types import Saved

OF_TORCH = ("aten", "prims", "prim", "higher_order")

Groups = Mapping[StorageKey, Sequence[Node]]


def restore_in_place(graph: GraphModule, context: PassContext) -> Outcome:
    """Call the in-place form where the memory it writes is not read again.

    Raises:
        CompileError: memory that a caller gave up is read again.
    """
    cuts = frozenset(context.config.splitting_ops or ())
    matches, refused, saved = 0, [], Saved()
    for node in calls_all(graph.graph):
        twin = in_place_twin(node.target)
        if twin is None or _base_name(node.target).partition("::")[0] in OF_TORCH:
            continue
        reason = _kept(node, twin, sharing(graph.graph))
        if reason and is_donating(node.target):
            raise CompileError(
                f"{node.name} gives memory up that is needed",
                reason,
                f"call {_base_name(node.target)} without .{DONATE}",
            )
        if reason:
            refused.append(f"{node.name}: {reason}")
            continue
        saved += _saved(node, is_splitting(node.target, cuts))
        _restore(node, twin)
        refresh(graph.graph)
        matches += 1
    return Outcome(matches, tuple(refused), saved)


def _base_name(target: Any) -> str:
    """`ns::op` of an operator."""
    return (overload_name(target) or "").partition(".")[0]


def _kept(node: Node, twin: Twin, groups: Groups) -> str:
    """Why a call must make new tensors; empty when it need not."""
    arguments = call_arguments(node)
    order = {one: place for place, one in enumerate(node.graph.nodes)}
    for index, place in enumerate(twin.written):
        operand, result = arguments[place], _results(node)[index]
        if not isinstance(operand, Node):
            return "what it would write is no tensor of the graph"
        reason = _alive(node, operand, groups, order) or _unlike(operand, result)
        if reason:
            return reason
        others = [one for at, one in enumerate(arguments) if at != place and isinstance(one, Node)]
        if any(memory_of(one) == memory_of(operand) for one in others if memory_of(one)):
            return f"{operand.name} shares memory with another argument"
    return ""


def _alive(node: Node, operand: Node, groups: Groups, order: Mapping[Node, int]) -> str:
    memory = memory_of(operand)
    group = groups.get(memory, ()) if memory is not None else ()
    later = [one for one in readers(group) if order[one] > order[node]]
    if later:
        return f"{operand.name} is read again by {later[0].name}"
    inputs = [one for one in group if one.op in ("placeholder", "get_attr")]
    if inputs and not is_donating(node.target):
        return f"{inputs[0].name} is an input of the step"
    return ""


def _unlike(operand: Node, result: torch.Tensor) -> str:
    own = value(operand)
    if own.dtype != result.dtype or own.device != result.device:
        return f"{operand.name} has another type than the result"
    if not same_strides(operand, result):
        return f"{operand.name} has other sizes or strides than the result"
    return ""


def _saved(node: Node, splits: bool) -> Saved:
    """New tensors; and at a cut their copies into the buffers of the step."""
    results = _results(node)
    size = sum(bytes_of(one) for one in results)
    return Saved(3 * size, len(results)) if splits else Saved(size)


def _results(node: Node) -> list[torch.Tensor]:
    found = value(node)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _restore(node: Node, twin: Twin) -> None:
    arguments = call_arguments(node)
    call(node, twin.target, *arguments, **node.kwargs)
    operands = [arguments[place] for place in twin.written]
    if not isinstance(value(node), (tuple, list)):
        node.replace_all_uses_with(operands[0])
    for user in list(node.users):
        if user.target is operator.getitem:
            user.replace_all_uses_with(operands[int(user.args[1])])  # type: ignore[arg-type]
            node.graph.erase_node(user)
    node.graph.erase_node(node)


RESTORE_IN_PLACE = builtin("restore_in_place", restore_in_place)
