"""The operators of `torch.ops.vcc`: one table of schemas, with what a fake run of each returns.

Schemas live in Python, so that tracing and the plain-torch back end work without a compiler; the
native library only adds CPU implementations. `torch.library.Library` is used and not
`torch.library.custom_op`: the latter costs ten times the call time and imports Dynamo.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NAMESPACE = "vcc"


@dataclass(frozen=True, slots=True)
class OpSchema:
    """One operator.

    Args:
        name: name inside `torch.ops.vcc`.
        arguments: arguments and results in torch's schema language.
        meta: the result for tensors without data; also what FakeTensor uses.
    """

    name: str
    arguments: str
    meta: Callable[..., Any]

    @property
    def schema(self) -> str:
        """The full schema text."""
        return self.name + self.arguments


def define(library: torch.library.Library) -> None:
    """Define every operator and its Meta implementation in `library` (namespace `vcc`)."""
    for op in OPS:
        library.define(op.schema, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(op.name, op.meta, "Meta")


def _like_x(x: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape)


def _pair_like_x(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


def _half_of_x(x: Tensor, *_: object) -> Tensor:
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


def _like_q_and_k(q: Tensor, k: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _chosen(logits: Tensor, top_k: int, *_: object) -> tuple[Tensor, Tensor]:
    shape = (logits.shape[0], top_k)
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int32)


def _fp8(x: Tensor, width: int) -> Tensor:
    return x.new_empty((*x.shape[:-1], width), dtype=torch.float8_e4m3fn)


def _fp8_and_scales(x: Tensor, width: int, block_size: int) -> tuple[Tensor, Tensor]:
    shape = (*x.shape[:-1], width // block_size if block_size else 1)
    scales = x.new_empty(shape, dtype=torch.float32)
    # On CUDA those of a block of all rows lie together. A fake tensor says in here that it is on
    # `meta`, and beside that for which device it stands.
    if shape[-1] != 1 and getattr(x, "fake_device", x.device).type == "cuda":
        rows = math.prod(shape[:-1])
        strides = [math.prod(shape[at + 1 : -1]) for at in range(len(shape) - 1)]
        scales = x.new_empty_strided(shape, (*strides, rows), dtype=torch.float32)
    return _fp8(x, width), scales


def _norm_quant(x: Tensor, *_: object) -> Tensor:
    return _fp8(x, x.shape[-1])


def _norm_quant_dynamic(
    x: Tensor, weight: Tensor, eps: float, offset: float = 0.0, block_size: int = 0, *_: object
) -> tuple[Tensor, Tensor]:
    return _fp8_and_scales(x, x.shape[-1], block_size)


def _add_norm_quant(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return _fp8(x, x.shape[-1]), x.new_empty(x.shape)


def _add_norm_quant_dynamic(
    x: Tensor, residual: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return (*_norm_quant_dynamic(x, *rest), x.new_empty(x.shape))


def _half_quant(x: Tensor, *_: object) -> Tensor:
    return _fp8(x, x.shape[-1] // 2)


def _silu_quant_dynamic(x: Tensor, block_size: int = 0, *_: object) -> tuple[Tensor, Tensor]:
    return _fp8_and_scales(x, x.shape[-1] // 2, block_size)


def _gelu_quant_dynamic(x: Tensor, tanh: bool = False, *rest: Any) -> tuple[Tensor, Tensor]:
    return _silu_quant_dynamic(x, *rest)


def _linear(x: Tensor, norm_weight: Tensor, weight: Tensor, *_: object) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _lora_low(x: Tensor, a: Tensor, *_: object) -> Tensor:
    return x.new_empty((x.shape[0], a.shape[1]), dtype=torch.float32)


def _scaled(
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    bias: Tensor | None,
    ranges: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=dtype)


def _nothing(*_: object) -> None:
    return None


OPS: tuple[OpSchema, ...] = (
    OpSchema(
        "rms_norm",
        "(Tensor x, Tensor weight, float eps, float weight_offset=0.0) -> Tensor",
        _like_x,
    ),
    OpSchema(
        "fused_add_rms_norm",
        "(Tensor x, Tensor residual, Tensor weight, float eps, float weight_offset=0.0)"
        " -> (Tensor, Tensor)",
        _pair_like_x,
    ),
    OpSchema("silu_and_mul", "(Tensor x) -> Tensor", _half_of_x),
    OpSchema(
        "rotary_embedding",
        "(Tensor q, Tensor k, Tensor cos, Tensor sin, int head_dim) -> (Tensor, Tensor)",
        _like_q_and_k,
    ),
    OpSchema(
        "kv_write",
        "(Tensor k, Tensor v, Tensor(a!) kv_cache, Tensor slot_mapping, Tensor? kv_scale=None)"
        " -> ()",
        _nothing,
    ),
    OpSchema(
        "paged_attention",
        "(Tensor q, Tensor kv_cache, Tensor block_table, Tensor seq_lens, Tensor query_start,"
        " Tensor(a!) out, float scale, int sliding_window=0, float soft_cap=0.0,"
        " Tensor? kv_scale=None) -> ()",
        _nothing,
    ),
    OpSchema(
        "topk_softmax",
        "(Tensor logits, int top_k, bool renormalise) -> (Tensor, Tensor)",
        _chosen,
    ),
    OpSchema(
        "moe_experts",
        "(Tensor x, Tensor gate_up, Tensor down, Tensor weights, Tensor ids) -> Tensor",
        _like_x,
    ),
    OpSchema("lora_shrink", "(Tensor x, Tensor a, Tensor slots) -> Tensor", _lora_low),
    OpSchema(
        "lora_expand",
        "(Tensor y, Tensor low, Tensor b, Tensor slots, int[] widths) -> Tensor",
        _like_x,
    ),
    OpSchema("gelu_and_mul", "(Tensor x, bool tanh=False) -> Tensor", _half_of_x),
    OpSchema(
        "rms_norm_quant",
        "(Tensor x, Tensor weight, Tensor scale, float eps, float weight_offset=0.0) -> Tensor",
        _norm_quant,
    ),
    OpSchema(
        "rms_norm_quant_dynamic",
        "(Tensor x, Tensor weight, float eps, float weight_offset=0.0, int block_size=0,"
        " float least=0.0) -> (Tensor, Tensor)",
        _norm_quant_dynamic,
    ),
    OpSchema(
        "fused_add_rms_norm_quant",
        "(Tensor x, Tensor residual, Tensor weight, Tensor scale, float eps,"
        " float weight_offset=0.0) -> (Tensor, Tensor)",
        _add_norm_quant,
    ),
    OpSchema(
        "fused_add_rms_norm_quant_dynamic",
        "(Tensor x, Tensor residual, Tensor weight, float eps, float weight_offset=0.0,"
        " int block_size=0, float least=0.0) -> (Tensor, Tensor, Tensor)",
        _add_norm_quant_dynamic,
    ),
    OpSchema("silu_and_mul_quant", "(Tensor x, Tensor scale) -> Tensor", _half_quant),
    OpSchema(
        "silu_and_mul_quant_dynamic",
        "(Tensor x, int block_size=0, float least=0.0) -> (Tensor, Tensor)",
        _silu_quant_dynamic,
    ),
    OpSchema(
        "gelu_and_mul_quant", "(Tensor x, Tensor scale, bool tanh=False) -> Tensor", _half_quant
    ),
    OpSchema(
        "gelu_and_mul_quant_dynamic",
        "(Tensor x, bool tanh=False, int block_size=0, float least=0.0) -> (Tensor, Tensor)",
        _gelu_quant_dynamic,
    ),
    OpSchema(
        "rms_norm_linear",
        "(Tensor x, Tensor norm_weight, Tensor weight, Tensor? bias, float eps,"
        " float weight_offset=0.0) -> Tensor",
        _linear,
    ),
    OpSchema(
        "qk_norm_rope",
        "(Tensor q, Tensor k, Tensor q_weight, Tensor k_weight, Tensor cos, Tensor sin,"
        " int head_dim, float eps, float weight_offset=0.0) -> (Tensor, Tensor)",
        _like_q_and_k,
    ),
    OpSchema(
        "rope_kv_write",
        "(Tensor q, Tensor k, Tensor v, Tensor cos, Tensor sin, Tensor(a!) kv_cache,"
        " Tensor slot_mapping, Tensor(b!) q_out, int head_dim, Tensor? kv_scale=None) -> ()",
        _nothing,
    ),
    OpSchema(
        "paged_attention_quant",
        "(Tensor q, Tensor kv_cache, Tensor block_table, Tensor seq_lens, Tensor query_start,"
        " Tensor(a!) out, Tensor out_scale, float scale, int sliding_window=0,"
        " float soft_cap=0.0, Tensor? kv_scale=None) -> ()",
        _nothing,
    ),
    OpSchema(
        "scaled_linear",
        "(Tensor x, Tensor weight, Tensor x_scale, Tensor w_scale, Tensor? bias, int[] ranges,"
        " ScalarType dtype) -> Tensor",
        _scaled,
    ),
    OpSchema(
        "scaled_experts",
        "(Tensor x, Tensor gate_up, Tensor down, Tensor gate_up_scale, Tensor down_scale,"
        " Tensor? x_scale, Tensor? inner_scale, Tensor weights, Tensor ids, float least)"
        " -> Tensor",
        _like_x,
    ),
    OpSchema(
        "topk_sigmoid",
        "(Tensor logits, int top_k, bool renormalise) -> (Tensor, Tensor)",
        _chosen,
    ),
)
"""All operators; `docs/architecture.md` and the native library name the same."""
