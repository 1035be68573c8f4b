"""Fused operators in plain torch: what each gives is what its parts give one after the other.

An activation is rounded to its dtype where the parts would hand it over; the quantised value is
that rounded one over the scale, both in fp32, clamped to ±448 and rounded as torch's conversion to
float8_e4m3fn does. Scales are fp32. NaN stays NaN, in scales too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from vcc.engine.ops import native_torch as plain
from vcc.engine.ops.native_quant import quantised, quantised_dynamic
from vcc.engine.ops.native_scaled import scaled_linear
from vcc.engine.ops.native_scaled_experts import scaled_experts


def rms_norm_quant(
    x: Tensor, weight: Tensor, scale: Tensor, eps: float, weight_offset: float = 0.0
) -> Tensor:
    """`rms_norm` quantised by one given scale."""
    return quantised(plain.rms_norm(x, weight, eps, weight_offset), scale)


def rms_norm_quant_dynamic(
    x: Tensor,
    weight: Tensor,
    eps: float,
    weight_offset: float = 0.0,
    block_size: int = 0,
    least: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """`rms_norm` quantised by row or block: values, scales."""
    return quantised_dynamic(plain.rms_norm(x, weight, eps, weight_offset), block_size, least)


def fused_add_rms_norm_quant(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    scale: Tensor,
    eps: float,
    weight_offset: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """`fused_add_rms_norm` quantised by one given scale: values, sum."""
    normed, total = plain.fused_add_rms_norm(x, residual, weight, eps, weight_offset)
    return quantised(normed, scale), total


def fused_add_rms_norm_quant_dynamic(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    weight_offset: float = 0.0,
    block_size: int = 0,
    least: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """`fused_add_rms_norm` quantised by row or block: values, scales, sum."""
    normed, total = plain.fused_add_rms_norm(x, residual, weight, eps, weight_offset)
    return (*quantised_dynamic(normed, block_size, least), total)


def rms_norm_linear(
    x: Tensor,
    norm_weight: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    eps: float,
    weight_offset: float = 0.0,
) -> Tensor:
    """`linear(rms_norm(x), weight, bias)` for `x [..., D]`, `weight [N, D]`, `bias [N]`."""
    return linear(plain.rms_norm(x, norm_weight, eps, weight_offset), weight, bias)


def gelu_and_mul(x: Tensor, tanh: bool = False) -> Tensor:
    """`gelu(x[..., :d]) * x[..., d:]` for `x[..., 2d]`; the tanh form, or by the error function."""
    gate, up = x.float().chunk(2, dim=-1)
    return (gelu(gate, approximate="tanh" if tanh else "none") * up).to(x.dtype).contiguous()


def silu_and_mul_quant(x: Tensor, scale: Tensor) -> Tensor:
    """`silu_and_mul` quantised by one given scale."""
    return quantised(plain.silu_and_mul(x), scale)


def silu_and_mul_quant_dynamic(
    x: Tensor, block_size: int = 0, least: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`silu_and_mul` quantised by row or block: values, scales."""
    return quantised_dynamic(plain.silu_and_mul(x), block_size, least)


def gelu_and_mul_quant(x: Tensor, scale: Tensor, tanh: bool = False) -> Tensor:
    """`gelu_and_mul` quantised by one given scale."""
    return quantised(gelu_and_mul(x, tanh), scale)


def gelu_and_mul_quant_dynamic(
    x: Tensor, tanh: bool = False, block_size: int = 0, least: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`gelu_and_mul` quantised by row or block: values, scales."""
    return quantised_dynamic(gelu_and_mul(x, tanh), block_size, least)


def qk_norm_rope(
    q: Tensor,
    k: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    head_dim: int,
    eps: float,
    weight_offset: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """RMS norm of each head of `q [T, H*D]`, `k [T, KV*D]`, then `rotary_embedding`."""
    pairs = ((q, q_weight), (k, k_weight))
    normed = [
        plain.rms_norm(x.unflatten(-1, (-1, head_dim)), weight, eps, weight_offset).flatten(-2)
        for x, weight in pairs
    ]
    return plain.rotary_embedding(normed[0], normed[1], cos, sin, head_dim)


def rope_kv_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    q_out: Tensor,
    head_dim: int,
    kv_scale: Tensor | None = None,
) -> None:
    """`rotary_embedding`, q into `q_out`, k with v into the cache as `kv_write` does."""
    turned, key = plain.rotary_embedding(q, k, cos, sin, head_dim)
    q_out.copy_(turned)
    plain.kv_write(key, v, kv_cache, slot_mapping, kv_scale)


def paged_attention_quant(
    q: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    out: Tensor,
    out_scale: Tensor,
    scale: float,
    sliding_window: int = 0,
    soft_cap: float = 0.0,
    kv_scale: Tensor | None = None,
) -> None:
    """`paged_attention` quantised by one given scale into `out`, float8_e4m3fn."""
    wide = torch.empty_like(q)
    rest = (block_table, seq_lens, query_start)
    plain.paged_attention(q, kv_cache, *rest, wide, scale, sliding_window, soft_cap, kv_scale)
    out.copy_(quantised(wide, out_scale))


def topk_sigmoid(logits: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """As `topk_softmax`, each expert's probability by itself: fp32 [T, k], int32 [T, k]."""
    values, ids = torch.sigmoid(logits.float()).topk(top_k, dim=-1)
    if renormalise:
        values = values / values.sum(-1, keepdim=True)
    return values.contiguous(), ids.to(torch.int32)


IMPLEMENTATIONS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("gelu_and_mul", gelu_and_mul),
    ("rms_norm_quant", rms_norm_quant),
    ("rms_norm_quant_dynamic", rms_norm_quant_dynamic),
    ("fused_add_rms_norm_quant", fused_add_rms_norm_quant),
    ("fused_add_rms_norm_quant_dynamic", fused_add_rms_norm_quant_dynamic),
    ("silu_and_mul_quant", silu_and_mul_quant),
    ("silu_and_mul_quant_dynamic", silu_and_mul_quant_dynamic),
    ("gelu_and_mul_quant", gelu_and_mul_quant),
    ("gelu_and_mul_quant_dynamic", gelu_and_mul_quant_dynamic),
    ("rms_norm_linear", rms_norm_linear),
    ("qk_norm_rope", qk_norm_rope),
    ("rope_kv_write", rope_kv_write),
    ("paged_attention_quant", paged_attention_quant),
    ("scaled_linear", scaled_linear),
    ("scaled_experts", scaled_experts),
    ("topk_sigmoid", topk_sigmoid),
)
"""Operator name -> plain-torch implementation."""
