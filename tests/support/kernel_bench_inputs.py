"""Inputs of bench_kernels on the device, and calls whose memory is already there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from support.kernel_bench_specs import PROFILE
from support.paged import PagedBatch
from support.triton_ops import NAMES, layout, play, spaces
from vcc.engine.ops.triton import registry

FLUSH = 256 << 20
"""Bytes that a timed loop goes through, so that operands come from memory and not from L2."""


def sampling_inputs(
    vocab: int, rows: int, spread: float, heat: float, p: float, k: int, like: Tensor
) -> dict[str, Tensor]:
    def full(value: float, dtype: torch.dtype) -> Tensor:
        return torch.full((rows,), value, dtype=dtype, device=like.device)

    return {
        "logits": (spread * torch.randn(rows, vocab, device=like.device)).to(like.dtype),
        "temperature": full(heat, torch.float32), "top_p": full(p, torch.float32),
        "top_k": full(k, torch.int32), "seed": full(7, torch.int64),
        "request": full(1, torch.int32), "step": full(3, torch.int32),
        "token": full(0, torch.int32),
    }  # fmt: skip


def next_product(a: Tensor, w: Tensor, index: Iterator[int]) -> Tensor:
    return a @ w[next(index) % len(w)].T


def gathered(batch: PagedBatch, length: int, count: int) -> tuple[Tensor, Tensor]:
    """Dense keys and values [count, heads, length, dim]."""
    _, _, size, heads, dim = batch.kv_cache.shape
    blocks = batch.block_table[:, : -(-length // size)].long()
    rows = batch.kv_cache[:, blocks].reshape(2, count, -1, heads, dim)[:, :, :length]
    dense = rows.transpose(2, 3).contiguous()
    return dense[0], dense[1]


def prepared(batch: PagedBatch) -> Callable[[], None]:
    """A call of paged attention whose memory is there, each time on the next of several caches."""
    size = batch.kv_cache.numel() * batch.kv_cache.element_size()
    copies = max(1, min(32, FLUSH // size)) if batch.q.is_cuda else 1
    caches = [batch.kv_cache.clone() for _ in range(copies)]
    out = torch.empty(batch.q.shape, dtype=batch.q.dtype, device=batch.q.device)
    tensors = {
        "q": batch.q,
        "kv_cache": batch.kv_cache,
        "out": out,
        "block_table": batch.block_table,
    }
    literals = {name: layout(tensor) for name, tensor in tensors.items()}
    literals |= {"scale": batch.kv_cache.shape[-1] ** -0.5}
    tensors |= {"seq_lens": batch.seq_lens, "query_start": batch.query_start}
    facts = registry.Facts(
        NAMES[batch.q.dtype], PROFILE, batch.kv_cache.shape[2], batch.block_table.shape[1]
    )
    plan = registry.launches("paged_attention", literals, facts)
    sizes = {"T": len(batch.q), "B": len(batch.seq_lens), "K": batch.kv_cache.shape[1]}
    tensors |= spaces(plan, sizes, batch.q.device)
    index = itertools.count()
    return lambda: play(plan, tensors | {"kv_cache": caches[next(index) % copies]}, sizes)
