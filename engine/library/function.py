"""FunctionModule: a function of tensors as a module without weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


class FunctionModule(nn.Module):
    """Computes what its function computes.

    Args:
        function: takes tensors and plain values, gives tensors.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result."""
        return self.function(*args, **kwargs)
