"""The table of schemas is what torch has, and fakes agree with the implementations."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from support.paged import Heads, paged_batch
from support.scaled_expert_cases import drawn
from torch.library import opcheck

from vcc.engine.ops import native_fused, native_torch, schemas


def _arguments(dtype: torch.dtype) -> dict[str, tuple[Any, ...]]:
    x, weight = torch.randn(3, 48).to(dtype), torch.randn(48).to(dtype)
    q, k = torch.randn(5, 4 * 16).to(dtype), torch.randn(5, 2 * 16).to(dtype)
    cos, sin = torch.randn(5, 6), torch.randn(5, 6)
    batch = paged_batch(Heads(4, 2, 16), [(9, 3), (2, 1)], dtype, padding_rows=1)
    slots = torch.tensor([3, -1, 7, 8, 9], dtype=torch.int32)
    indices = (batch.block_table, batch.seq_lens, batch.query_start)
    scale, wide = torch.tensor(0.02), torch.randn(16).to(dtype)
    fp8 = torch.empty(5, 64, dtype=torch.float8_e4m3fn)
    return {
        "gelu_and_mul": (x, True),
        "rms_norm_quant": (x, weight, scale, 1e-6, 1.0),
        "rms_norm_quant_dynamic": (x, weight, 1e-6, 0.0, 16),
        "fused_add_rms_norm_quant": (x, x.flip(0), weight, scale, 1e-6),
        "fused_add_rms_norm_quant_dynamic": (x, x.flip(0), weight, 1e-6),
        "silu_and_mul_quant": (x, scale),
        "silu_and_mul_quant_dynamic": (x, 8, 1e-12),
        "gelu_and_mul_quant": (x, scale),
        "gelu_and_mul_quant_dynamic": (x, True, 0, 1e-12),
        "rms_norm_linear": (x, weight, torch.randn(8, 48).to(dtype), None, 1e-6),
        "qk_norm_rope": (q, k, wide, wide.flip(0), cos, sin, 16, 1e-6),
        "rope_kv_write": (q, k, k.flip(0), cos, sin, batch.kv_cache, slots, q.flip(0), 16),
        "paged_attention_quant": (batch.q, batch.kv_cache, *indices, fp8, scale, 0.25),
        "scaled_linear": (
            torch.randn(3, 48).to(torch.float8_e4m3fn),
            torch.randn(8, 48).to(torch.float8_e4m3fn),
            torch.rand(3, 1),
            torch.rand(2),
            torch.randn(8).to(dtype),
            (3, 5),
            dtype,
        ),
        "scaled_experts": tuple(drawn("tensor-static", (3, 7, 2, 48, 24), dtype).arguments()),
        "topk_sigmoid": (torch.randn(5, 7).to(dtype), 3, True),
        "rms_norm": (x, weight, 1e-6, 1.0),
        "fused_add_rms_norm": (x, x.flip(0), weight, 1e-6),
        "silu_and_mul": (x,),
        "rotary_embedding": (q, k, cos, sin, 16),
        "kv_write": (k, k.flip(0), batch.kv_cache, slots),
        "topk_softmax": (torch.randn(5, 7).to(dtype), 3, True),
        "moe_experts": (
            x,
            torch.randn(7, 2 * 24, 48).to(dtype),
            torch.randn(7, 48, 24).to(dtype),
            torch.rand(3, 2),
            torch.tensor([[0, 6], [6, 2], [1, 6]], dtype=torch.int32),
        ),
        "lora_shrink": (x, torch.randn(3, 8, 48).to(dtype), slots[:3]),
        "lora_expand": (
            x,
            torch.randn(3, 8),
            torch.randn(9, 48, 4).to(dtype),
            slots[:3],
            (32, 16),
        ),
        "paged_attention": (batch.q, batch.kv_cache, *indices, torch.empty(5, 64).to(dtype), 0.25),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [op.name for op in schemas.OPS])
def test_opcheck_passes(ops: Any, name: str, dtype: torch.dtype) -> None:
    # Torch's look at aliases multiplies arguments, which it cannot do in fp8.
    fp8 = name in ("paged_attention_quant", "scaled_linear", "scaled_experts")
    checks = () if fp8 else ("test_schema",)
    rest = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    opcheck(getattr(ops, name).default, _arguments(dtype)[name], test_utils=(*checks, *rest))


def test_the_table_is_what_torch_has(ops: Any) -> None:
    for op in schemas.OPS:
        # torch prints the default 0.0 as "0."
        found = re.sub(r"=0\.(?!\d)", "=0.0", str(getattr(ops, op.name).default._schema))
        assert found == f"{schemas.NAMESPACE}::{op.schema}"


def test_every_operator_has_a_plain_torch_implementation() -> None:
    mine = (*native_torch.IMPLEMENTATIONS, *native_fused.IMPLEMENTATIONS)
    assert [name for name, _ in mine] == [op.name for op in schemas.OPS]


def test_fakes_of_empty_and_single_row_inputs(ops: Any) -> None:
    weight = torch.empty(8, device="meta")
    for rows in (0, 1):
        x = torch.empty(rows, 8, device="meta")
        assert ops.rms_norm(x, weight, 1e-6).shape == (rows, 8)
        assert ops.silu_and_mul(x).shape == (rows, 4)
