"""Which sums of a product and a bias are results, and are taken in fp32 therefore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import Graph
from torch.fx.experimental.proxy_tensor import make_fx

from vcc.engine.graphs.planner.biased import widen_results

BF16 = torch.bfloat16


def graph_of(function: Callable[..., Any], dtype: torch.dtype = BF16) -> Graph:
    given = [torch.zeros(*shape, dtype=dtype) for shape in ((6, 8), (8, 4), (4,), (6, 4))]
    return make_fx(function, tracing_mode="fake")(*given).graph


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b, r: torch.mm(x, w) + b,
        lambda x, w, b, r: b + torch.mm(x, w),
        lambda x, w, b, r: (torch.mm(x, w).view(2, 3, 4) + b).view(6, 4),
        lambda x, w, b, r: (torch.mm(x, w) + b, r * 2),
    ],
)
def test_a_result_with_a_bias_is_summed_in_fp32(function: Callable[..., Any]) -> None:
    graph = graph_of(function)
    (product,) = widen_results(graph)
    graph.lint()
    assert product.target is torch.ops.aten.mm.default
    (total,) = (node for node in graph.nodes if node.target is torch.ops.aten.add.Tensor)
    assert total.meta["val"].dtype is torch.float32
    (rounded,) = total.users
    assert rounded.meta["val"].dtype is BF16


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda x, w, b, r: torch.mm(x, w) + b, torch.float32),
        (lambda x, w, b, r: torch.relu(torch.mm(x, w) + b), BF16),  # inside
        (lambda x, w, b, r: torch.mm(x, w) + r, BF16),  # no bias: the product adds it
        (lambda x, w, b, r: torch.add(torch.mm(x, w), b, alpha=2), BF16),
        (lambda x, w, b, r: torch.mm(x, w) + b * 2, BF16),  # computed
        (lambda x, w, b, r: (lambda y: (y + b, y))(torch.mm(x, w)), BF16),  # returned as well
        (lambda x, w, b, r: (lambda y: (y, y * 2))(torch.mm(x, w) + b), BF16),  # read inside too
        (lambda x, w, b, r: torch.mm(x, w), BF16),
    ],
)
def test_other_sums_stay_as_they_are(function: Callable[..., Any], dtype: torch.dtype) -> None:
    graph = graph_of(function, dtype)
    before = str(graph)
    assert widen_results(graph) == frozenset()
    assert str(graph) == before
