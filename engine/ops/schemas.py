"""The operators of `torch.ops.vcc`: one table of schemas, with what a fake run of each returns.

Schemas live in Python, so that tracing and the plain-torch back end work without a compiler; the
native library only adds CPU implementations. `torch.library.Library` is used and not
`torch.library.custom_op`: the latter costs ten times the call time and imports Dynamo.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _half_of_x(x: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


def _like_q_and_k(q: Tensor, k: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _chosen(logits: Tensor, top_k: int, *_: object) -> tuple[Tensor, Tensor]:
    shape = (logits.shape[0], top_k)
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int32)


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
        "(Tensor k, Tensor v, Tensor(a!) kv_cache, Tensor slot_mapping) -> ()",
        _nothing,
    ),
    OpSchema(
        "paged_attention",
        "(Tensor q, Tensor kv_cache, Tensor block_table, Tensor seq_lens, Tensor query_start,"
        " Tensor(a!) out, float scale, int sliding_window=0, float soft_cap=0.0) -> ()",
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
)
"""All operators; `docs/architecture.md` and the native library name the same."""
