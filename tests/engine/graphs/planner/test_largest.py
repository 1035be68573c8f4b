"""The k largest as comparisons: what torch gives, and kernels of Inductor's in a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.cuda_child import gpu_pieces, in_a_gpu_build, planned
from support.flow import ask
from support.interpreted_forward import computed
from support.numbers import assert_fp32_close
from support.traced_checkpoints import make_traced
from support.zoos import open_zoo

from vcc.cache.errors import CompileError
from vcc.cache.store import Store
from vcc.engine.events import NullEvents
from vcc.engine.graphs.planner.largest import LONGEST, largest
from vcc.engine.request import settle
from vcc.engine.verify_interpret import interpret

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8)
CASES: dict[str, tuple[tuple[int, ...], int, int]] = {
    "a router's": ((7, 64), -1, 8),
    "not the last": ((3, 60, 5), 1, 4),
    "all of one row": ((16,), 0, 16),
    "one": ((2, 3, 1), -1, 1),
    "none": ((4, 9), 1, 0),
    "no rows": ((0, 5), 1, 2),
}


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers of which many are equal, and where the dtype has them NaN, infinities and -0."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 9, shape, generator=generator).to(dtype)
    if dtype.is_floating_point and x.numel() > 8:
        odd = (torch.nan, -torch.inf, -torch.inf, torch.inf, -0.0, torch.nan)
        x.view(-1)[torch.randperm(x.numel(), generator=generator)[: len(odd)]] = torch.tensor(
            odd, dtype=dtype
        )
    return x


@pytest.mark.parametrize("highest", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_they_are_those_of_torch(case: str, dtype: torch.dtype, highest: bool) -> None:
    shape, dim, count = CASES[case]
    x = drawn(shape, dtype)
    values, places = largest(x, count, dim, highest)
    wanted = torch.topk(x, count, dim, highest).values
    torch.testing.assert_close(values, wanted, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(x.gather(dim, places), wanted, rtol=0, atol=0, equal_nan=True)
    assert places.dtype is torch.int64


def test_of_equal_values_the_first_are_taken() -> None:
    x = torch.tensor([1.0, 3.0, 3.0, torch.nan, 1.0, torch.nan, 3.0])
    assert largest(x, 6)[1].tolist() == [3, 5, 1, 2, 6, 0]
    assert largest(x, 6, largest=False)[1].tolist() == [0, 4, 1, 2, 6, 3]


ROUTER = '''"""A router that chooses groups of experts first, as DeepSeek-V3's does."""

import torch


class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(16, 8, bias=False)
        self.register_buffer("bias", torch.randn(8))

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        choice = scores + self.bias
        groups = choice.view(-1, 4, 2).topk(2, dim=-1)[0].sum(-1)
        best = torch.topk(groups, k=2, dim=-1, sorted=False)[1]
        allowed = torch.zeros_like(groups).scatter_(1, best, 1).unsqueeze(-1).expand(-1, 4, 2)
        choice = choice.masked_fill(~allowed.reshape(-1, 8).bool(), float("-inf"))
        weights, experts = scores, torch.topk(choice, k=3, dim=-1)[1]
        weights = weights.gather(1, experts)
        return weights / weights.sum(-1, keepdim=True), experts.float()


def make():
    torch.manual_seed(0)
    return Router().eval()
'''


def test_a_router_on_a_gpu_chooses_what_it_chooses_in_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_zoo(tmp_path, monkeypatch, "routing_zoo", ROUTER)
    from routing_zoo import make

    module = make()
    batches = [{"x": torch.randn(rows, 16)} for rows in (1, 40)]
    (tmp_path / "job").mkdir()
    weights = module.state_dict()
    shapes = ["x=T@1-64x16"]
    found = computed(tmp_path / "job", "routing_zoo:make", weights, batches, inputs=shapes)
    for mine, batch in zip(found, batches, strict=True):
        for one, other in zip(mine, module(**batch), strict=True):
            assert_fp32_close(one, other)


def test_long_rows_are_refused_by_the_operators_name() -> None:
    def body() -> str:
        pieces = gpu_pieces(forward, {"x": ("T", LONGEST + 1)}, {"T": (1, 8)})
        with pytest.raises(CompileError) as caught:
            planned(pieces)
        return str(caught.value)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x.topk(2).values

    assert "aten.topk" in in_a_gpu_build(body)


@pytest.mark.slow
def test_the_node_table_of_a_traced_decoder_with_experts_computes_it(tmp_path: Path) -> None:
    make_traced(tmp_path / "model", "OlmoeForCausalLM")
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 48, "max_model_len": 64}
    settled = settle(
        ask(tmp_path / "model", weights="none", target="sm_90", dtype="fp32", **limits)
    )
    interpret(settled, Store.open(tmp_path / "store"), (1, 11), NullEvents())
