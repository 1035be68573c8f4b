"""Hear every operator call of this thread, below autograd: eager segments are recorded so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

Hear = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]
"""Is given an operator with its arguments, calls it, and returns the result."""


@contextmanager
def heard(hear: Hear) -> Iterator[None]:
    """Hand every operator call inside to `hear`; calls that `hear` makes are not handed to it.

    Other threads are not heard. Higher-order operators are handed over too: a launch of a Triton
    kernel by `wrap_triton` is one.
    """

    class Hearing(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return hear(func, args, kwargs or {})

    with Hearing():  # type: ignore[no-untyped-call]
        yield


@contextmanager
def unheard() -> Iterator[None]:
    """Calls inside are not handed to anyone, wherever this thread is."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        yield


def is_higher_order(op: Any) -> bool:
    """Whether an operator that was heard takes code or kernels instead of tensors alone."""
    return isinstance(op, HigherOrderOperator)
