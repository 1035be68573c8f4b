"""Fake tensors with symbolic sizes of a declared range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StrictMinMaxConstraint,
)
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod
from torch.utils._sympy.value_ranges import ValueRanges

FLOOR_DIVISIONS: tuple[type, ...] = (FloorDiv,)
MODULI: tuple[type, ...] = (Mod, PythonMod)
MINIMA: tuple[type, ...] = (sympy.Min, Min)
MAXIMA: tuple[type, ...] = (sympy.Max, Max)


def fake_mode() -> FakeTensorMode:
    """A fresh mode whose shape environment knows no symbol yet."""
    return FakeTensorMode(shape_env=ShapeEnv())


def new_symbol(mode: FakeTensorMode, name: str, hint: int, low: int, high: int) -> torch.SymInt:
    """Create a size symbol called `name` with its hint and inclusive range.

    As in `torch.export`, code is generated under the assumption that the size is at least 2; it
    is right for 1 too, which goldens and tests check.
    """
    env = cast(ShapeEnv, mode.shape_env)
    source = ConstantSource(f"__{name}")
    symbol = env.create_symbol(
        hint,
        source=source,
        dynamic_dim=DimDynamic.DYNAMIC,
        constraint_dim=StrictMinMaxConstraint(vr=ValueRanges(low, high), warn_only=False),
    )
    return cast(torch.SymInt, env.create_symintnode(symbol, hint=hint, source=source))


def hint_of(value: torch.SymInt | FakeTensor, symbol: sympy.Symbol) -> int | None:
    """The size seen while tracing; it steers code generation, so it is part of identity."""
    hints = _hints(shape_env_of(value))
    return int(hints[symbol]) if symbol in hints else None


def _hints(env: ShapeEnv) -> Mapping[sympy.Symbol, Any]:
    # Renamed between torch releases; both are dicts from symbol to its example value.
    for name in ("backed_var_to_val", "var_to_val"):
        if hasattr(env, name):
            return cast("Mapping[sympy.Symbol, Any]", getattr(env, name))
    raise AttributeError("ShapeEnv keeps no hints under a known name")


def shape_env_of(value: torch.SymInt | FakeTensor) -> ShapeEnv:
    """The shape environment behind a symbolic integer or a fake tensor."""
    if isinstance(value, torch.SymInt):
        return cast(ShapeEnv, value.node.shape_env)
    return cast(ShapeEnv, value.fake_mode.shape_env)


def expression(size: int | torch.SymInt) -> sympy.Expr:
    """A size as a sympy expression over the environment's symbols.

    Raises:
        TypeError: not a size; a symbolic float would be cut to an integer without a word.
    """
    if isinstance(size, torch.SymInt):
        return size.node.expr
    if isinstance(size, int):
        return sympy.Integer(size)
    raise TypeError(f"{type(size).__name__} is not a size")


def strided(
    mode: FakeTensorMode,
    shape: Sequence[int | torch.SymInt],
    stride: Sequence[int | torch.SymInt],
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """A fake tensor of the given geometry."""
    with cast("AbstractContextManager[Any]", mode):
        return torch.empty_strided(shape, stride, dtype=dtype, device=device)


def as_fake(mode: FakeTensorMode, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Fake tensors in the shape of a module's parameters and buffers, by name."""
    real = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: mode.from_tensor(one.detach(), static_shapes=True) for name, one in real.items()}


_NEEDS_DATA = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)


def needs_data(error: BaseException) -> bool:
    """Whether code failed on fake tensors for want of data, and not by a fault of its own."""
    return isinstance(error, _NEEDS_DATA)


def operator_without_fake(error: BaseException) -> str:
    """`namespace::name` of the operator that code failed for, since it has no fake; or empty."""
    if not isinstance(error, UnsupportedOperatorException):
        return ""
    name = getattr(error.func, "_schema", None)
    return str(error.func) if name is None else str(name.name)
