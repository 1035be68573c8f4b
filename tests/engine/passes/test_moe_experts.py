"""Experts in transformers' grouped form become one operator; other forms stay with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.fusions import Fused, fused
from support.toys import rows
from torch import Tensor
from torch.nn.functional import relu, silu

from vcc.engine.passes.act_mul import FUSE_ACT_MUL
from vcc.engine.passes.moe_experts import FUSE_MOE_EXPERTS
from vcc.engine.passes.moe_router import FUSE_MOE_ROUTER

pytest.importorskip("transformers.integrations.moe")
EXPERTS, WIDTH, INNER, TOP = 4, 16, 8, 2


def experts(m: Any, x: Tensor, act: Any = silu, share: int = TOP) -> Tensor:
    """As transformers' `grouped_mm_experts_forward` is traced on the CPU."""
    grouped = torch.ops.transformers.grouped_mm_fallback
    weights, ids = torch.softmax(x[:, :EXPERTS], -1).topk(TOP, -1)
    chosen, order = torch.sort(ids.reshape(-1))
    counts = torch.histc(chosen.float(), EXPERTS, 0, EXPERTS - 1)
    ends = torch.cumsum(counts, 0, dtype=torch.int32)
    wide = grouped(x[order // share], m.gate_up.transpose(-2, -1), ends)
    gate, up = wide.chunk(2, -1)
    out = grouped(act(gate) * up, m.down.transpose(-2, -1), ends)
    out = out * weights.reshape(-1)[order].unsqueeze(-1)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.shape[0])
    return out[back].view(-1, TOP, WIDTH).sum(1)


def run(model: Callable[[Any, Tensor], Any], *before: Any) -> Fused:
    parts = {
        "gate_up": rows(EXPERTS * 2 * INNER, WIDTH).view(EXPERTS, 2 * INNER, WIDTH).sin(),
        "down": rows(EXPERTS * WIDTH, INNER).view(EXPERTS, WIDTH, INNER).cos(),
    }
    given = {name: torch.nn.Parameter(one, requires_grad=False) for name, one in parts.items()}
    return fused(FUSE_MOE_EXPERTS, model, {"x": (rows(6, WIDTH) * 7).sin()}, before=before, **given)


@pytest.mark.parametrize("before", [(), (FUSE_ACT_MUL,), (FUSE_ACT_MUL, FUSE_MOE_ROUTER)], ids=len)
def test_experts_are_one_operator_whatever_fused_before(before: tuple[Any, ...]) -> None:
    found = run(experts, *before)
    assert found.fused[-1] == "moe_experts"
    assert not found.of("transformers")
    assert found.proof.error <= 1e-6
    assert found.proof.settled
    assert found.proof.report.saved.launches >= 12


LEFT: dict[str, tuple[Callable[[Any, Tensor], Any], str]] = {
    "another activation": (lambda m, x: experts(m, x, act=relu), "calls aten::relu.default"),
    "rows of another number of experts": (
        lambda m, x: experts(m, x, share=3),
        "it takes 3 experts a row",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_near_match_is_left_with_its_reason(name: str) -> None:
    model, reason = LEFT[name]
    found = run(model)
    assert "moe_experts" not in found.fused
    refused = found.proof.report.refused
    assert any(reason in one for one in refused), refused
