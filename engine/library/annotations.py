"""Which arguments of a forward are annotated as tensors; annotations may be texts."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch

_TEXTS = frozenset({"Tensor", "torch.Tensor"})


def tensor_arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the arguments annotated as a tensor, or as a tensor or None, in their order."""
    try:
        hints = get_type_hints(function)
    except Exception:  # a name that is imported for type checkers alone
        hints = {}
    parameters = inspect.signature(function).parameters
    found = {name: hints.get(name, one.annotation) for name, one in parameters.items()}
    return tuple(name for name, one in found.items() if _is_tensor(one))


def _is_tensor(annotation: Any) -> bool:
    if isinstance(annotation, str):
        text = annotation.replace(" ", "").removeprefix("typing.").removeprefix("Optional")
        return text.strip("[]").removesuffix("|None").removeprefix("None|") in _TEXTS
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [one for one in get_args(annotation) if one is not type(None)]
        return len(kinds) == 1 and _is_tensor(kinds[0])
    return isinstance(annotation, type) and issubclass(annotation, torch.Tensor)
