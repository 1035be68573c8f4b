"""Running an operator on fake values, and sizes at the example values of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map_only

from vcc.engine.torch_shim.fake import expression, fake_mode, hint_of


def fake_call(target: Callable[..., Any], near: Any, *args: Any, **kwargs: Any) -> Any:
    """The fake result of an operator.

    Args:
        target: an overload.
        near: a fake tensor of the same trace, for calls without one.
        args, kwargs: fake tensors, symbolic sizes and plain values.
    """
    leaves = tree_leaves((args, kwargs, near))
    fake = next((one for one in leaves if isinstance(one, FakeTensor)), None)
    mode = nullcontext() if fake is None else cast("AbstractContextManager[Any]", fake.fake_mode)
    with mode, torch.no_grad():
        return target(*args, **kwargs)


def fake_results(target: Callable[..., Any], args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that an operator's fake gives for real arguments; none where it refuses them.

    Args:
        target: an overload.
        args, kwargs: real tensors and plain values.
    """
    mode = fake_mode()

    def fake(value: torch.Tensor) -> torch.Tensor:
        return mode.from_tensor(value, static_shapes=True)

    with mode, torch.no_grad():
        given = tree_map_only(torch.Tensor, fake, (args, kwargs))
        try:
            found = target(*given[0], **given[1])
        except Exception:  # a fake is somebody's code; a trace has asked it and would have ended
            return []
    return [one for one in tree_leaves(found) if isinstance(one, torch.Tensor)]


def hinted(size: int | torch.SymInt) -> int:
    """A size at the example values that the trace was made with."""
    if isinstance(size, int):
        return size
    found = expression(size)
    return int(found.xreplace({symbol: hint_of(size, symbol) for symbol in found.free_symbols}))


def sized(size: int | torch.SymInt, values: Mapping[sympy.Symbol, int]) -> int:
    """A size at these values of the size symbols."""
    return size if isinstance(size, int) else int(expression(size).xreplace(dict(values)))


def symbols_of(values: Sequence[torch.Tensor]) -> dict[sympy.Symbol, int]:
    """The size symbols of fake tensors with the example value of each, in order of appearance."""
    sizes: list[Any] = [size for value in values for size in value.shape]
    sizes = [size for size in sizes if isinstance(size, torch.SymInt)]
    found: dict[sympy.Symbol, int] = {}
    for size in sizes:
        for symbol in sorted(expression(size).free_symbols, key=str):
            found[symbol] = hint_of(size, symbol) or 1
    return found


@contextmanager
def watched(value: Any) -> Iterator[list[str]]:
    """Assumptions about sizes that the body makes; filled when it ends.

    After an export the environment is frozen: it would answer a comparison of sizes by the
    example values and not say so.

    Args:
        value: a fake tensor of the trace; anything else has no environment.
    """
    found: list[str] = []
    if not isinstance(value, FakeTensor) or value.fake_mode.shape_env is None:
        yield found
        return
    env: ShapeEnv = value.fake_mode.shape_env
    frozen, known, replaced = env.frozen, len(env.guards), dict(env.replacements)
    env.frozen = False
    try:
        yield found
    finally:
        env.frozen = frozen
        found += [str(guard.expr) for guard in env.guards[known:]]
        new = {k: v for k, v in env.replacements.items() if replaced.get(k) != v}
        found += [f"{symbol} = {size}" for symbol, size in new.items()]
