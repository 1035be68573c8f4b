"""Facts about FX nodes and operator schemas that partitioning and passes ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.multiprocessing.reductions import StorageWeakRef

from vcc.engine.config.op_names import named_in
from vcc.engine.torch_shim.triton_nodes import is_triton_launch, written_by_launch

StorageKey = StorageWeakRef
"""What `storage_key` returns: hashable, equal for one memory."""


def overload_name(target: Any) -> str | None:
    """`ns::op.overload` of an operator target, or None for a Python callable."""
    if not isinstance(target, OpOverload):
        return None
    overload = target._overloadname
    return f"{target.namespace}::{target._opname}" + (f".{overload}" if overload else "")


def foreign_name(target: Any) -> str:
    """The name of an operator that is neither torch's nor ours and writes nothing; else empty."""
    name = overload_name(target)
    if name is None or target.namespace in ("aten", "prims", "vcc") or target._schema.is_mutable:
        return ""
    return name.removesuffix(".default")


def is_splitting(target: Any, names: frozenset[str]) -> bool:
    """Whether `names` holds the target: a bare name matches all overloads."""
    name = overload_name(target)
    return name is not None and named_in(name, names)


def mutated_arguments(node: Node) -> tuple[Any, ...]:
    """The arguments that a call writes in place, by its schema; those of a Triton launch too."""
    if is_triton_launch(node):
        return written_by_launch(node)
    if not isinstance(node.target, OpOverload):
        return ()
    written: list[Any] = []
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        written.extend(value if isinstance(value, (list, tuple)) else [value])
    return tuple(value for value in written if isinstance(value, Node))


def call_arguments(node: Node) -> list[Any]:
    """All positional arguments of an operator call in schema order, defaults filled in."""
    target = node.target
    if not isinstance(target, OpOverload):
        return list(node.args)
    values = list(node.args)
    for argument in target._schema.arguments[len(values) :]:
        if not argument.kwarg_only:
            values.append(node.kwargs.get(argument.name, argument.default_value))
    return values


def absent_tensors(target: Any, values: Sequence[Any]) -> int:
    """How many arguments at the end of a call are optional tensors that are None by default.

    Args:
        target: an operator overload.
        values: of `call_arguments`.
    """
    if not isinstance(target, OpOverload):
        return 0
    declared = [one for one in target._schema.arguments if not one.kwarg_only]
    count = 0
    for argument, value in zip(reversed(declared), reversed(values), strict=False):
        optional = argument.has_default_value() and str(argument.type) == "Optional[Tensor]"
        if value is not None or not optional:
            break
        count += 1
    return count


def argument_names(overload: Any) -> tuple[str, ...]:
    """Names of an operator's positional arguments, in schema order."""
    return tuple(a.name for a in overload._schema.arguments if not a.kwarg_only)


def keyword_only(node: Node) -> list[str]:
    """Names of keyword-only arguments that a call sets to something else than their default."""
    if not isinstance(node.target, OpOverload):
        return []
    arguments = [a for a in node.target._schema.arguments if a.kwarg_only]
    return [
        a.name for a in arguments if node.kwargs.get(a.name, a.default_value) != a.default_value
    ]


def is_registered(name: str) -> bool:
    """Whether `ns::op` or `ns::op.overload` is an operator that this process knows."""
    namespace, _, rest = name.partition("::")
    op, _, overload = rest.partition(".")
    found = getattr(getattr(torch.ops, namespace, None), op, None) if namespace and op else None
    return found is not None and (not overload or hasattr(found, overload))


def registered_names() -> tuple[str, ...]:
    """`ns::op` of every operator that the dispatcher knows."""
    return tuple(sorted({name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}))


def is_pure(node: Node) -> bool:
    """Whether removing an unused call changes nothing."""
    if node.op != "call_function":
        return node.op == "get_attr"
    if isinstance(node.target, OpOverload):
        return not node.target._schema.is_mutable and not node.is_impure()
    return not node.is_impure() and not is_triton_launch(node)


def storage_key(value: torch.Tensor) -> StorageKey:
    """Equal for tensors that share storage; works for fake tensors."""
    return StorageWeakRef(value.untyped_storage())


def is_symbolic(node: Node) -> bool:
    """Whether the node computes a size, or a number or condition of sizes, rather than a tensor."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymBool, torch.SymFloat))


def is_size(node: Node) -> bool:
    """Whether the node computes a size."""
    return isinstance(node.meta.get("val"), torch.SymInt)


def is_opaque(node: Node) -> bool:
    """Whether the node calls an operator that writes its arguments and is not one of torch's."""
    return (
        isinstance(node.target, OpOverload)
        and node.target.namespace not in ("aten", "prims")
        and node.target._schema.is_mutable
    )


def is_random(node: Node) -> bool:
    """Whether two calls on equal arguments differ."""
    return (
        isinstance(node.target, OpOverload)
        and torch.Tag.nondeterministic_seeded in node.target.tags
    )
