"""A convolution as products gives what torch's own gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vcc.engine.graphs.planner import convolutions
from vcc.engine.graphs.planner.convolutions import convolved

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "patches": ((2, 3, 16, 24), (5, 3, 8, 8), {"stride": [8, 8]}),
    "points": ((1, 6, 3, 5), (4, 6, 1, 1), {}),
    "same": ((1, 4, 7, 9), (6, 4, 3, 3), {"padding": [1, 1]}),
    "strided": ((3, 2, 11, 8), (4, 2, 3, 2), {"stride": [2, 3], "padding": [2, 0]}),
    "apart": ((1, 2, 12, 12), (3, 2, 3, 3), {"dilation": [2, 3], "padding": [2, 1]}),
    "depthwise": ((2, 6, 9, 9), (6, 1, 3, 3), {"padding": [1, 1], "groups": 6}),
    "groups": ((2, 6, 9, 5), (4, 3, 3, 1), {"groups": 2, "stride": [2, 1]}),
    "one dimension": ((2, 6, 20), (9, 2, 5), {"groups": 3, "stride": [2], "dilation": [2]}),
    "three dimensions": ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"padding": [1, 0, 1]}),
}


def test_the_rows_of_a_product_lie_without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points of one image are a view of it, transposed: a gemm node cannot read that."""
    from torch.fx.experimental.proxy_tensor import make_fx

    image, weight = torch.randn(1, 6, 3, 5), torch.randn(4, 6, 1, 1)
    order = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    graph = make_fx(lambda *two: convolved(*two, *order), tracing_mode="fake")(image, weight).graph
    (product,) = graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
    left: Any = product.args[0]
    assert left.meta["val"].is_contiguous()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_convolution(case: str, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "batched", torch.bmm)
    sizes, filters, fields = CASES[case]
    generator = torch.Generator().manual_seed(0)
    image, weight = (torch.randn(one, generator=generator) for one in (sizes, filters))
    added = torch.randn(filters[0], generator=generator) if bias else None
    dims = len(sizes) - 2
    zeros, ones = [0] * dims, [1] * dims
    given: dict[str, Any] = {"stride": ones, "padding": zeros, "dilation": ones, "groups": 1}
    given |= fields
    order = (given["stride"], given["padding"], given["dilation"], False, zeros, given["groups"])
    found = convolved(image, weight, added, *order)
    wanted = torch.ops.aten.convolution.default(image, weight, added, *order)
    assert found.is_contiguous()
    torch.testing.assert_close(found, wanted)
