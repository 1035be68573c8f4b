"""Inputs that compiled code writes to lie apart from all others, and so do their elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from vcc.cache.errors import UsageError


def check_apart(tensors: Mapping[str, torch.Tensor], changed: Sequence[str]) -> None:
    """Refuse memory that a written input shares with another or itself: code works on copies.

    Args:
        tensors: the inputs of a call by name.
        changed: names of those that the forward writes to.

    Raises:
        UsageError: eager code would see a write in another place.
    """
    for name in changed:
        if _overlaps(tensors[name]):
            raise UsageError(
                f"elements of {name} share memory",
                f"the forward writes to {name}, which eager code would see in other elements",
                f"give {name}.clone()",
            )
        place = tensors[name].untyped_storage().data_ptr()
        for other, tensor in tensors.items():
            if other != name and tensor.untyped_storage().data_ptr() == place:
                raise UsageError(
                    f"{name} and {other} share memory",
                    f"the forward writes to {name}, which eager code would see in {other}",
                    f"give {other}.clone()",
                )


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether two elements may lie in one place: False is certain."""
    reach = 0  # of the dimensions with smaller steps: from their first element to their last
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step <= reach:
            return tensor.numel() > 0
        reach += step * (size - 1)
    return False
