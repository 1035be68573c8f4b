"""The k largest of a row become comparisons and sums, which Inductor compiles like any others.

Inductor calls torch's own kernels for `aten.topk`, and a node table has none of them. A value's
rank is how many values of its row go before it; the k-th largest is the one whose rank is k. That
is n x n comparisons a row, so it is for rows as short as a router's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph

from vcc.engine.passes.rewrite import calls, fake_value
from vcc.engine.torch_shim.inline import inline, traced_call
from vcc.engine.torch_shim.nodes import call_arguments
from vcc.engine.torch_shim.strides import dense

LONGEST = 1024
"""Values of a row at most: the largest routers have 512 experts."""


def place_largest(graph: Graph) -> None:
    """Write every `aten.topk` over short rows as comparisons, in place.

    Args:
        graph: Inductor's, after its own passes; nodes have fake values.
    """
    for node in list(calls(graph, torch.ops.aten.topk.default)):
        source, k, dim, highest, _ = call_arguments(node)
        if is_short(source.meta["val"], k, dim):
            node.args, node.kwargs = (source, k, dim, highest), {}
            inline(node, traced_call(largest, node), fake_value)
    graph.lint()


def is_short(x: Tensor, k: Any, dim: int) -> bool:
    """Whether rows are of a known length that is worth comparing each with each.

    Args:
        x, k, dim: those of a call; a size that moves is no integer.
    """
    known = x.dim() > 0 and isinstance(k, int)
    return known and isinstance(x.shape[dim], int) and x.shape[dim] <= LONGEST


def largest(x: Tensor, k: int, dim: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """As `torch.topk`, always in order, and of equal values the ones that stand first.

    Args:
        x: [..., n, ...] along `dim`; NaN counts as larger than all else.
        k, dim, largest: those of `torch.topk`.

    Returns:
        Values and int64 places, each [..., k, ...].
    """
    turned = x.movedim(dim, -1)
    apart, length = turned.shape[:-1], turned.shape[-1]
    # In memory: computed anew for each comparison, one value might come out as two.
    rows = dense(turned.reshape(-1, length))
    taken = ranks(rows, largest).unsqueeze(1) == _places(x, k).unsqueeze(1)
    values = torch.where(taken, rows.unsqueeze(1), _least(rows)).amax(-1)
    places = (taken * _places(x, length)).sum([-1])
    first, second = (
        one.reshape(*apart, k).movedim(-1, dim).contiguous() for one in (values, places)
    )
    return first, second


def ranks(rows: Tensor, largest: bool) -> Tensor:
    """How many values of its row go before each: int32 [m, n] of [m, n]."""
    mine, other = rows.unsqueeze(2), rows.unsqueeze(1)
    places = _places(rows, rows.shape[1])
    ahead = _greater(other, mine) if largest else _greater(mine, other)
    level = ~(_greater(other, mine) | _greater(mine, other))
    earlier = places.unsqueeze(0) < places.unsqueeze(1)
    return (ahead | (level & earlier)).sum([-1], dtype=torch.int32)


def _greater(one: Tensor, other: Tensor) -> Tensor:
    """Whether a value is above another; NaN is above every number, and level with itself."""
    if not one.is_floating_point():
        return one > other
    return (one > other) | ((one != one) & (other == other))


def _places(like: Tensor, count: int) -> Tensor:
    """0 to count - 1 in int64."""
    kind = {"dtype": torch.int64, "device": like.device, "requires_grad": False}
    found: Tensor = torch.ops.prims.iota(count, start=0, step=1, **kind)
    return found


def _least(like: Tensor) -> Tensor:
    """Below which no value of a dtype is."""
    kind = like.dtype
    value = -torch.inf if kind.is_floating_point else torch.iinfo(kind).min
    return torch.full([], value, dtype=kind, device=like.device)
