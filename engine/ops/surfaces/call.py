"""Call an operator of ours where a package has it: lay out, map arguments, give results."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from vcc.cache.errors import DeviceError
from vcc.engine.ops.backends import BACKENDS, Package
from vcc.engine.ops.schemas import OPS, OpSchema
from vcc.engine.ops.surfaces import bind
from vcc.engine.ops.surfaces.row import (
    Const,
    InOut,
    Out,
    Row,
    Scratch,
    Strides,
    Value,
    View,
)

Given = Mapping[str, Any]
"""Arguments of our operator by name."""


class SurfaceOps:
    """The operators of `torch.ops.vcc` as a back end has them: its rows, imported when called.

    Args:
        backend: name of a back end whose rows name importable symbols.
    """

    def __init__(self, backend: str) -> None:
        found = BACKENDS[backend]
        self._rows, self._package = found.surface, found.package

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_") or op not in self._rows:
            raise AttributeError(op)
        row, package = self._rows[op], self._package
        if package is None:
            call: Callable[..., Any] = _imported(row.symbol)
        else:
            call = partial(run, row, _symbol(row.symbol, package), _schema(op))
        setattr(self, op, call)  # found once, then an attribute like any other
        return call


@cache
def surface_ops(backend: str) -> SurfaceOps:
    """The operators of a back end; nothing is imported before one is called."""
    return SurfaceOps(backend)


def run(row: Row, symbol: Callable[..., Any], op: OpSchema, *arguments: Any) -> Any:
    """Call a symbol as its row says.

    Args:
        row: the map.
        symbol: what is called.
        op: our operator.
        arguments: in the order of the operator's schema; defaults may be left out.
    """
    given = _named(op, arguments)
    results = op.meta(*arguments)
    many = isinstance(results, tuple)
    fresh: list[Tensor] = list(results) if many else [results]
    if row.returns:
        given_over = {name: _value(one, row, given, fresh) for name, one in row.arguments.items()}
        made: Tensor = symbol(**given_over)
        return made.view(fresh[0].shape)
    for call in row.calls:
        for value in call.values():
            if isinstance(value, InOut):
                fresh[value.index] = given[value.name].clone(memory_format=torch.contiguous_format)
        symbol(**{name: _value(one, row, given, fresh) for name, one in call.items()})
    return tuple(fresh) if many else fresh[0]


def _named(op: OpSchema, arguments: tuple[Any, ...]) -> Given:
    return dict(zip((one.name for one in bind.of_schema(op.schema)), arguments, strict=False))


def _value(value: Value, row: Row, given: Given, fresh: list[Tensor]) -> Any:
    if isinstance(value, Const):
        return value.value
    if isinstance(value, InOut):
        return fresh[value.index]
    if isinstance(value, Scratch):
        return torch.empty_like(fresh[value.index])
    if isinstance(value, Out):
        return _seen(fresh[value.index], value.view, given)
    found = given[value.name]
    if not isinstance(found, Tensor):
        return found
    if value.view is View.ANGLES and "q" in given:
        found = found.contiguous()
    return _seen(laid_out(found, row.strides), value.view, given)


def _seen(tensor: Tensor, view: View, given: Given) -> Tensor:
    if view is View.MATRIX:
        return tensor.view(-1, tensor.shape[-1])
    tokens = tensor.shape[0] if tensor.dim() else 1
    if view is View.HEADS:
        return tensor.view(tokens, -1, given["head_dim"])
    if view is View.SBHD:
        return tensor.view(tokens, 1, -1, given["head_dim"])
    return tensor.view(tokens, 1, 1, -1) if view is View.ANGLES else tensor


def laid_out(tensor: Tensor, strides: Strides) -> Tensor:
    """The tensor, or a copy of it where a kernel would not take its layout."""
    if strides is Strides.ROWS and tensor.dim():
        last = tensor.stride(-1)
        # A stride that is a symbol is not compared: a comparison would narrow the trace's sizes.
        return tensor if last.__class__ is int and last == 1 else tensor.contiguous()
    if strides is Strides.ANY or tensor.is_contiguous():
        return tensor
    return tensor.contiguous()


@cache
def _schema(name: str) -> OpSchema:
    return next(op for op in OPS if op.name == name)


def _symbol(text: str, package: Package) -> Callable[..., Any]:
    """Import what a row names.

    Raises:
        DeviceError: the package does not have it.
    """
    try:
        for module in package.modules:
            importlib.import_module(module)
        if "::" in text:
            namespace, _, name = text.partition("::")
            found: Callable[..., Any] = getattr(getattr(torch.ops, namespace), name)
            return found
        return _imported(text)
    except (ImportError, OSError, AttributeError) as error:
        raise DeviceError(
            f"{package.distribution} does not give {text}",
            f"{type(error).__name__}: {error}",
            f"install a version from {package.minimum} on, or switch the custom op off",
        ) from error


def _imported(text: str) -> Callable[..., Any]:
    name, _, attribute = text.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(name), attribute)
    return found
