"""What schemas say of memory: operators in two forms (`ns::op`, in place `ns::op_`), and views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

DONATE = "donate"
"""Overload by which a caller gives up the tensors that the in-place form writes."""


@dataclass(frozen=True, slots=True)
class Twin:
    """The in-place form of an operator.

    Attributes:
        target: the overload `ns::op_`.
        written: positions of the arguments that it writes, one for each result of `ns::op`.
    """

    target: Any
    written: tuple[int, ...]


def in_place_twin(target: Any) -> Twin | None:
    """The in-place form of an operator that has one: same arguments, a write for each result."""
    if not isinstance(target, OpOverload) or target._schema.is_mutable:
        return None
    packet = getattr(getattr(torch.ops, target.namespace), f"{target._opname}_", None)
    twin = getattr(packet, "default", None)
    if not isinstance(twin, OpOverload):
        return None
    mine, its = target._schema, twin._schema
    written = tuple(
        place
        for place, one in enumerate(its.arguments)
        if one.alias_info is not None and one.alias_info.is_write
    )
    same = [(a.name, str(a.type)) for a in mine.arguments] == [
        (a.name, str(a.type)) for a in its.arguments
    ]
    return Twin(twin, written) if same and len(written) == len(mine.returns) > 0 else None


def is_donating(target: Any) -> bool:
    """Whether a call gives up its arguments."""
    return isinstance(target, OpOverload) and target._overloadname == DONATE


def may_view(target: Any) -> bool:
    """Whether a result of an operator may share memory with an argument that it does not write."""
    return isinstance(target, OpOverload) and any(
        one.alias_info is not None and not one.alias_info.is_write for one in target._schema.returns
    )
