"""A product that is read in fp32 alone gives fp32; any other keeps its type."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.cuda_child import gpu_pieces, in_a_gpu_build, planned
from torch import Tensor
from torch.fx import Graph
from torch.nn import functional

from vcc.engine.graphs.planner.products import place_products
from vcc.engine.torch_shim.fake import fake_mode
from vcc.engine.trace.attention import attention


def scores(x: Tensor) -> Tensor:
    return x @ x.transpose(1, 2)


def below(x: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.ones(x.shape[1], x.shape[1], dtype=dtype, device=x.device).tril()


def torchs_own(self: Any, x: Tensor) -> Tensor:
    return attention(x, x, x, is_causal=True)


def scaled_before(self: Any, x: Tensor) -> Tensor:
    return attention(x * 0.25, x, x, scale=1.0)


def in_heads(self: Any, x: Tensor) -> Tensor:
    q = x.view(3, x.shape[1], 2, 8).transpose(1, 2)
    return attention(q, q, q)


def scaled_in_its_type(self: Any, x: Tensor) -> Tensor:
    return functional.softmax(scores(x) * 0.25, -1, dtype=torch.float32).to(x.dtype) @ x


def masked_in_its_type(self: Any, x: Tensor) -> Tensor:
    masked = scores(x).masked_fill(below(x, torch.bool), -1e4)
    return functional.softmax(masked, -1, dtype=torch.float32).to(x.dtype) @ x


def added_to_fp32(self: Any, x: Tensor) -> Tensor:
    return (scores(x) + below(x, torch.float32)).softmax(-1).to(x.dtype) @ x


def read_twice(self: Any, x: Tensor) -> Tensor:
    found = scores(x)
    return (found.float().softmax(-1).to(x.dtype) + found.sum(-1, keepdim=True)) @ x


def returned(self: Any, x: Tensor) -> Any:
    found = scores(x)
    return found, found.float().softmax(-1).to(x.dtype) @ x


def returned_as_a_view(self: Any, x: Tensor) -> Any:
    found = scores(x)
    return found[:, None], found.float().softmax(-1).to(x.dtype) @ x


def another_function(self: Any, x: Tensor) -> Tensor:
    return scores(x).cos().float().softmax(-1).to(x.dtype) @ x


def in_its_type(self: Any, x: Tensor) -> Tensor:
    return (scores(x) * 2) @ x


def over_one_element(self: Any, x: Tensor) -> Tensor:
    found = x[..., :1] @ x[..., :1].transpose(1, 2)
    return found.float().softmax(-1).to(x.dtype) @ x


def of_matrices(self: Any, x: Tensor) -> Tensor:
    return (x[0] @ x[1]).float().softmax(-1).to(x.dtype) @ x[2]


def with_an_addend(self: Any, x: Tensor) -> Tensor:
    return torch.addmm(x[0], x[1], x[2]).float().softmax(-1).to(x.dtype) @ x[2]


def sum_of_products(self: Any, x: Tensor) -> Tensor:
    return (x[0] @ x[1] + x[1] @ x[2]).float().softmax(-1)


WIDENED = (
    *(torchs_own, scaled_before, in_heads, scaled_in_its_type, masked_in_its_type),
    *(added_to_fp32, of_matrices, with_an_addend),
)
KEPT = (read_twice, returned, returned_as_a_view, another_function, in_its_type)


def graph_of(function: Any, dtype: torch.dtype = torch.bfloat16) -> Graph:
    """What Inductor shows to the rewrite, nearly: decomposed, with fake values."""
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    with fake_mode():
        x = torch.empty(3, 16, 16, dtype=dtype)
        traced = make_fx(lambda x: function(None, x), select_decomp_table())(x)
    return traced.graph


def placed(function: Any, dtype: torch.dtype = torch.bfloat16) -> list[torch.dtype]:
    """The types of what the launches for the products of a function give."""
    graph = graph_of(function, dtype)
    place_products(graph)
    return [
        n.meta["val"].dtype for n in graph.nodes if n.target is torch.ops.aten.new_empty.default
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", WIDENED)
def test_scores_of_a_softmax_in_fp32_are_not_rounded(function: Any, dtype: torch.dtype) -> None:
    assert placed(function, dtype) == [torch.float32, dtype]


@pytest.mark.parametrize("function", KEPT)
def test_what_somebody_reads_in_its_own_type_keeps_it(function: Any) -> None:
    assert placed(function) == [torch.bfloat16, torch.bfloat16]


def test_products_that_are_added_are_both_fp32() -> None:
    assert placed(sum_of_products) == [torch.float32, torch.float32]


def test_a_product_over_one_element_is_computed_in_fp32() -> None:
    graph = graph_of(over_one_element)
    place_products(graph)
    (product,) = (n for n in graph.nodes if n.target is torch.ops.aten.mul.Tensor)
    assert product.meta["val"].dtype is torch.float32


def test_what_is_fp32_already_stays_as_it_is() -> None:
    assert placed(in_heads, torch.float32) == [torch.float32, torch.float32]


def test_the_planned_kernels_are_of_these_types() -> None:
    def kinds(function: Any, size: int | str) -> list[list[str]]:
        ranges = {"T": (1, 64)} if size == "T" else {}
        work = planned(gpu_pieces(function, {"x": (3, size, 16)}, ranges)).work
        return [[one.kernel.source.function, *dict(one.kernel.parameters).values()] for one in work]

    def body() -> Any:
        fixed = [kinds(one, 16) for one in (with_an_addend, over_one_element)]
        return [kinds(scaled_in_its_type, "T"), *fixed]

    (_, product, softmax, shares), added, (fused, *_) = in_a_gpu_build(body)
    assert product[:4] == ["product", "*bf16", "*bf16", "*fp32"]
    assert softmax[1:3] == ["*fp32", "*bf16"]
    assert shares[:4] == ["product", "*bf16", "*bf16", "*bf16"]
    assert [one[3] for one in added if one[0] == "product"] == ["*fp32", "*bf16"]
    assert fused[0] != "product"
