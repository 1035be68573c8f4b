"""The arguments of a call: tensors by name with their declared shapes, and values that are fixed.

Calls that differ in sizes of dynamic dimensions alone are of one variant, and so of one artifact.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch

from vcc.cache.errors import ConfigError, UsageError
from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.library.options import Options
from vcc.engine.models.shapes import Dim, InputShape

Fixed = bool | int | float | str | None
"""A value that becomes part of the code."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What calls of one artifact have in common.

    Attributes:
        shapes: of the tensors, by argument.
        state: the other arguments as text, which tells True from 1 and 0.0 from -0.0.
        fixed: the same by name.
    """

    shapes: tuple[InputShape, ...]
    state: tuple[tuple[str, str], ...]
    fixed: Mapping[str, Fixed] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its variant, and its tensors by name."""

    variant: Variant
    tensors: Mapping[str, torch.Tensor]


class Arguments:
    """Reads calls of one function.

    Args:
        function: whose parameters they are.
        options: which dimensions are dynamic, and their ranges.

    Raises:
        ConfigError: a dynamic dimension is declared of a parameter that is not there.
    """

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self._signature = inspect.signature(function)
        self._options = options
        kinds = {one.kind for one in self._signature.parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            _check_names(options.dynamic, self._signature.parameters)

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """The call with these arguments.

        Raises:
            UsageError: they do not fit the parameters, a size is out of range, or a value is
                neither a tensor nor something that can be fixed.
        """
        tensors: dict[str, torch.Tensor] = {}
        fixed: dict[str, Fixed] = {}
        for name, value in self._bound(args, kwargs).items():
            if isinstance(value, torch.Tensor):
                tensors[name] = value
            elif value is None or type(value) in (bool, int, float, str):
                fixed[name] = value
            else:
                raise _not_taken(name, value)
        if not tensors:
            raise UsageError("the call has no tensors", "there is nothing to compute from")
        sizes: dict[str, tuple[int, str]] = {}
        shapes = tuple(self._shape(name, one, sizes) for name, one in tensors.items())
        state = tuple((f"argument.{name}", repr(value)) for name, value in fixed.items())
        return Call(Variant(shapes, state, fixed), tensors)

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError("the arguments do not fit the forward", str(error)) from error
        found: dict[str, Any] = {}  # what is left out has its default, which is in the source
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                found |= value
            elif kind is not inspect.Parameter.VAR_POSITIONAL:
                found[name] = value
            elif value:
                raise UsageError(f"*{name} cannot be compiled", "inputs need names")
        return found

    def _shape(
        self, name: str, tensor: torch.Tensor, sizes: dict[str, tuple[int, str]]
    ) -> InputShape:
        _check_tensor(name, tensor)
        axes = self._axes(name, tensor)
        dims = tuple(
            self._dim(f"dimension {index} of {name}", size, axes[index], sizes)
            if index in axes
            else Dim(size, size)
            for index, size in enumerate(tensor.shape)
        )
        return InputShape(name, dims, NAMES[tensor.dtype])

    def _axes(self, name: str, tensor: torch.Tensor) -> dict[int, str]:
        rank = tensor.dim()
        wanted = self._options.dynamic.get(name, {})
        wrong = next((dim for dim in wanted if not -rank <= dim < rank), None)
        if wrong is not None:
            raise UsageError(
                f"{name} has {rank} dimensions", f"dimension {wrong} is declared to be dynamic"
            )
        return {dim % rank: axis for dim, axis in wanted.items()}

    def _dim(self, what: str, size: int, axis: str, sizes: dict[str, tuple[int, str]]) -> Dim:
        low, high = self._options.range_of(axis)
        first, where = sizes.setdefault(axis, (size, what))
        if size != first:
            raise UsageError(
                f"{what} is {size}",
                f"{where} is {first}, and both are declared as {axis}",
                f'give them names of their own: dynamic_arg_dims={{…: {{0: "{axis}2"}}}}',
            )
        if not low <= size <= high:
            raise UsageError(
                f"{what} is {size}",
                f"{axis} is declared from {low} to {high}",
                f'widen it: sizes={{"{axis}": ({min(low, max(size, 1))}, {max(high, size)})}}',
            )
        return Dim(low, high, axis if low != high else "")


def _check_names(dynamic: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in dynamic:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has: {', '.join(known)}"
            raise ConfigError(f"the forward has no argument {name}", "it is declared dynamic", hint)


def _check_tensor(name: str, tensor: torch.Tensor) -> None:
    """Raise UsageError for a tensor that no artifact takes."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise UsageError(
            f"{name} is {tensor.layout} on {tensor.device}",
            "modules of a program are compiled for dense tensors on the CPU",
            "on a GPU use vcc.load for decoders, or vcc compile module:factory",
        )
    if tensor.dtype not in NAMES:
        raise UsageError(f"{name} is {tensor.dtype}", "artifacts have no tensors of it")
    if 0 in tensor.shape:
        raise UsageError(f"{name} has shape {list(tensor.shape)}", "an empty tensor is not taken")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise UsageError(
            f"{name} requires a gradient",
            "compiled code is for inference and has none",
            f"call it under torch.no_grad(), or give {name}.detach()",
        )


def _not_taken(name: str, value: object) -> UsageError:
    return UsageError(
        f"{name} is a {type(value).__name__}",
        "an argument is a tensor, or None, a bool, a number or a text, which is compiled in",
        "give each tensor an argument of its own",
    )
