"""Buffers that a forward assigns anew: a trace follows writes into tensors, not names bound again.

`self.count = self.count + 1` would be traced as if the old buffer stayed: every call would begin
from the same state, without a word. `self.count.add_(1)` is followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vcc.cache.errors import CompileError


@contextmanager
def refused_assignments(module: torch.nn.Module) -> Iterator[None]:
    """Let the body trace a module.

    Raises:
        CompileError: its forward bound a buffer or a parameter to another tensor.
    """
    before: dict[str, torch.Tensor] = {}

    def note(*_: Any) -> None:
        before.update(_tensors(module))

    def compare(*_: Any) -> None:
        after = _tensors(module)
        for name in before.keys() & after.keys():
            if after[name] is not before[name]:
                raise _assigned(name)

    hooks = (module.register_forward_pre_hook(note), module.register_forward_hook(compare))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _assigned(name: str) -> CompileError:
    return CompileError(
        f"the forward assigns {name} anew",
        "a trace follows what is written into a tensor, not which tensor a name stands for",
        f"write in place: self.{name}.copy_(…) or self.{name}.add_(…)",
    )
