"""Routing and experts by Triton's interpreter against plain torch.

    TRITON_INTERPRET=1 python -m support.expert_cases float32

Inputs are fresh each time; the seed is printed.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from support.kernel_cases import held
from vcc.engine.ops import native_experts, native_fused
from vcc.engine.ops.triton import wrapped_experts

SIZES = (
    (1, 4, 2, 32, 16),
    (37, 8, 3, 50, 23),
    (70, 20, 4, 48, 40),
    (9, 128, 8, 32, 16),
)
"""Rows, experts, experts a row, width of a row and of an expert; the last expert gets no row."""


def plain(x: Tensor, gate_up: Tensor, down: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
    """As modules of plain torch do it: one expert after another, rounded at each step."""
    out = torch.zeros_like(x)
    for expert in ids.unique().tolist():
        rows, choices = torch.where(ids == expert)
        gate, up = torch.nn.functional.linear(x[rows], gate_up[expert]).chunk(2, dim=-1)
        inner = torch.nn.functional.silu(gate) * up
        each = torch.nn.functional.linear(inner, down[expert])
        out.index_add_(0, rows, each * weights[rows, choices, None].to(x.dtype))
    return out


def check(dtype: torch.dtype) -> None:
    """Every size, with and without weights that add up to one."""
    for tokens, count, top_k, hidden, width in SIZES:
        x = torch.randn(tokens, hidden).to(dtype)
        gate_up = (torch.randn(count, 2 * width, hidden) / hidden**0.5).to(dtype)
        down = (torch.randn(count, hidden, width) / width**0.5).to(dtype)
        logits = torch.stack([torch.randperm(count) for _ in range(tokens)]).to(dtype)
        logits[:, -1] = -30.0
        for renormalise in (True, False):
            _sigmoid(logits, top_k, renormalise)
            want = native_experts.topk_softmax(logits, top_k, renormalise)
            routes = wrapped_experts.topk_softmax(logits, top_k, renormalise, through=lambda k: k)
            torch.testing.assert_close(routes, want, atol=1e-6, rtol=1e-5)
            if not renormalise:
                continue
            found = wrapped_experts.moe_experts(x, gate_up, down, *routes, through=lambda k: k)
            exact = (one.float() for one in (x, gate_up, down))
            peer = plain(x, gate_up, down, *want)
            held(found, native_experts.moe_experts(*exact, *want), peer)


def _sigmoid(logits: Tensor, top_k: int, renormalise: bool) -> None:
    """Each expert by itself; in the second row, if there is one, an expert that is no number."""
    scores = logits * (6 / logits.shape[1]) - 3  # apart in each type, and no probability is one
    if len(scores) > 1:
        scores[1, 2] = float("nan")
    want = native_fused.topk_sigmoid(scores, top_k, renormalise)
    found = wrapped_experts.topk_sigmoid(scores, top_k, renormalise, through=lambda k: k)
    torch.testing.assert_close(found, want, atol=1e-6, rtol=1e-5, equal_nan=True)


if __name__ == "__main__":
    print("torch seed", torch.seed())
    check(getattr(torch, sys.argv[1]))
