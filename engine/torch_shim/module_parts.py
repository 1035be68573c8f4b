"""What a module is made of, part by part, and how often a tensor was written to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

HIDDEN = frozenset({"_parameters", "_buffers", "_modules", "training"})
"""Entries of a module's `__dict__` that the functions below stand for, and its mode."""


def own_parameters(module: nn.Module) -> Mapping[str, torch.Tensor | None]:
    """Parameters of the module itself, those that are None too."""
    return module._parameters


def own_buffers(module: nn.Module) -> Iterator[tuple[str, torch.Tensor | None, bool]]:
    """Name, buffer and whether it is part of the state dict, of the module itself."""
    left_out = module._non_persistent_buffers_set
    return ((name, one, name not in left_out) for name, one in module._buffers.items())


def own_tables(module: nn.Module) -> tuple[Mapping[Any, Any], ...]:
    """The module's tables of parameters, buffers, submodules and hooks, as they are kept."""
    hooks = (value for name, value in vars(module).items() if name.endswith("_hooks"))
    found = (module._parameters, module._buffers, module._modules, *hooks)
    return tuple(one for one in found if isinstance(one, Mapping))


def writes_to(tensor: torch.Tensor) -> int:
    """A number that grows with every write into the tensor; 0 where torch does not count."""
    return 0 if tensor.is_inference() else tensor._version
