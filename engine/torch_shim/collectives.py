"""Collectives as a trace has them: torch's functional ones, whose namespace is private."""

from __future__ import annotations

from typing import Any

import torch


def functional_all_reduce() -> tuple[Any, Any]:
    """The operators of a sum over ranks: the one that begins it, and the one that waits for it."""
    namespace = torch.ops._c10d_functional
    return namespace.all_reduce.default, namespace.wait_tensor.default
