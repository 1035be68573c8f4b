"""Memory in an order that is asked for: Inductor is free to choose one, also that of a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves


def laying() -> Any:
    """The operator of `laid`, as a call of a graph names it."""
    from torch._inductor import inductor_prims

    return inductor_prims.force_stride_order


def laid(x: Tensor, strides: Sequence[int]) -> Tensor:
    """The same values; in code of Inductor they lie in the order of these strides.

    A copy is made only of what lies otherwise and cannot be written so by whoever makes it. Gaps
    and where the memory starts stay as they are.

    Args:
        x: in any layout.
        strides: one a dimension, in elements, those of a tensor without gaps.
    """
    found: Tensor = laying()(x, list(strides))
    return found


def dense(x: Tensor) -> Tensor:
    """The same values row-major without gaps, in code of Inductor too; all sizes but the first are
    known."""
    strides = [1]
    for size in reversed(x.shape[1:]):
        strides.insert(0, strides[0] * int(size))
    apart = x if x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)
    return laid(apart, strides)


def strides_in(value: Any) -> list[tuple[int, ...]]:
    """Those of the tensors of a call's value, in order."""
    return [one.stride() for one in tree_leaves(value) if isinstance(one, Tensor)]
