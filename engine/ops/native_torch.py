"""Operators in plain torch: the CPU back end without a compiler, and the tests' reference.

Statistics, products and softmax are fp32 whatever the tensor's dtype; results are rounded once.
T is the number of flattened tokens, B of sequences, H of query heads, KV of key heads, D the head
size. Results are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops.native_cache import check_scale, put, taken
from vcc.engine.ops.native_experts import moe_experts, topk_softmax
from vcc.engine.ops.native_lora import lora_expand, lora_shrink

QUERY_CHUNK = 256
"""Query rows scored at a time: bounds the score matrix at QUERY_CHUNK x H x context floats."""


def rms_norm(x: Tensor, weight: Tensor, eps: float, weight_offset: float = 0.0) -> Tensor:
    """Root-mean-square norm of the last dimension: `x / rms(x) * (weight_offset + weight)`."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (scaled * (weight.float() + weight_offset)).to(x.dtype).contiguous()


def fused_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, weight_offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The norm of `x + residual`, and that sum rounded to the dtype of `x`."""
    total = (x.float() + residual.float()).to(x.dtype).contiguous()
    return rms_norm(total, weight, eps, weight_offset), total


def silu_and_mul(x: Tensor) -> Tensor:
    """`silu(x[..., :d]) * x[..., d:]` for `x[..., 2d]`."""
    gate, up = x.float().chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(x.dtype).contiguous()


def rotary_embedding(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, head_dim: int
) -> tuple[Tensor, Tensor]:
    """Rotate the first R values of each head, halves paired (NeoX); cos, sin are `[T, R/2]`."""
    return _rotate(q, cos, sin, head_dim), _rotate(k, cos, sin, head_dim)


def kv_write(
    k: Tensor,
    v: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    kv_scale: Tensor | None = None,
) -> None:
    """Store `k, v [T, KV*D]` at their slots of `kv_cache`; rows with slot -1 are skipped.

    A float8_e4m3fn cache holds them over `kv_scale`, fp32 [2] of keys and of values; None is 1.
    """
    check_scale(kv_cache, kv_scale)
    rows = (slot_mapping >= 0).nonzero().flatten()
    slots = slot_mapping[rows].long()
    for part, new in enumerate((k, v)):
        put(kv_cache, part, slots, new[rows].view(-1, *kv_cache.shape[3:]), kv_scale)


def paged_attention(
    q: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    out: Tensor,
    scale: float,
    sliding_window: int = 0,
    soft_cap: float = 0.0,
    kv_scale: Tensor | None = None,
) -> None:
    """Causal attention of `q [T, H*D]` over each sequence's cached keys, into `out`.

    Rows past `query_start[B]`, and rows without a visible key, become zero. `kv_scale` as in
    `kv_write`.
    """
    check_scale(kv_cache, kv_scale)
    rule = _Rule(scale, sliding_window, soft_cap)
    head_dim = kv_cache.shape[-1]
    if out.untyped_storage().data_ptr() == q.untyped_storage().data_ptr():
        q = q.clone()  # a caller may have the results over the queries
    out.zero_()
    for sequence in _sequences(seq_lens, query_start):
        blocks = block_table[sequence.index]
        keys, values = taken(kv_cache, blocks, sequence.length, kv_scale)
        for begin, end in sequence.chunks(QUERY_CHUNK):
            queries = _heads(q[begin:end], head_dim)
            positions = torch.arange(begin, end, device=q.device) + sequence.shift
            out[begin:end] = _attend(queries, keys, values, positions, rule).to(out.dtype)


@dataclass(frozen=True, slots=True)
class _Rule:
    """How scores are scaled, masked and capped."""

    scale: float
    window: int
    cap: float

    def scores(self, raw: Tensor) -> Tensor:
        scaled = raw * self.scale
        return self.cap * torch.tanh(scaled / self.cap) if self.cap > 0 else scaled

    def visible(self, positions: Tensor, keys: int) -> Tensor:
        distance = positions[:, None] - torch.arange(keys, device=positions.device)[None, :]
        seen = distance >= 0
        return seen & (distance < self.window) if self.window > 0 else seen


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Rows `begin..end` of T belong to sequence `index` of `length` tokens."""

    index: int
    begin: int
    end: int
    length: int

    @property
    def shift(self) -> int:
        """Position of row r is r + shift: the last row is the sequence's last token."""
        return self.length - self.end

    def chunks(self, size: int) -> Iterator[tuple[int, int]]:
        for begin in range(self.begin, self.end, size):
            yield begin, min(begin + size, self.end)


def _sequences(seq_lens: Tensor, query_start: Tensor) -> Iterator[_Sequence]:
    starts = query_start.tolist()
    for index, length in enumerate(seq_lens.tolist()):
        if starts[index + 1] > starts[index] and length > 0:
            yield _Sequence(index, starts[index], starts[index + 1], length)


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, positions: Tensor, rule: _Rule
) -> Tensor:
    """Softmax attention of `[q, H, D]` over `[L, KV, D]`; returns fp32 `[q, H*D]`."""
    group = queries.shape[1] // keys.shape[1]
    grouped = queries.float().view(queries.shape[0], keys.shape[1], group, -1)
    scores = rule.scores(torch.einsum("qkgd,lkd->kgql", grouped, keys))
    seen = rule.visible(positions, keys.shape[0])
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1)
    # A row before the sequence's start sees no key: zero. Any other NaN came from the inputs.
    weights = weights.where(seen.any(-1, keepdim=True), 0.0)
    return torch.einsum("kgql,lkd->qkgd", weights, values).flatten(1)


def _heads(x: Tensor, head_dim: int) -> Tensor:
    """`[T, H*D]` -> `[T, H, D]` without a copy, whatever the row stride."""
    return x.view(x.shape[0], x.shape[1] // head_dim, head_dim)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, head_dim: int) -> Tensor:
    half = cos.shape[-1]
    heads = _heads(x.float(), head_dim)
    low, high, rest = heads.split((half, half, head_dim - 2 * half), dim=-1)
    cos, sin = cos.float()[:, None], sin.float()[:, None]
    parts = (low * cos - high * sin, high * cos + low * sin, rest)
    return torch.cat(parts, dim=-1).flatten(-2).to(x.dtype)


IMPLEMENTATIONS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("rms_norm", rms_norm),
    ("fused_add_rms_norm", fused_add_rms_norm),
    ("silu_and_mul", silu_and_mul),
    ("rotary_embedding", rotary_embedding),
    ("kv_write", kv_write),
    ("paged_attention", paged_attention),
    ("topk_softmax", topk_softmax),
    ("moe_experts", moe_experts),
    ("lora_shrink", lora_shrink),
    ("lora_expand", lora_expand),
)
"""Operator name -> plain-torch implementation."""
