"""Random paged batches for the attention tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, key heads, head size."""

    query: int
    key: int
    dim: int


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """Arguments of paged_attention, and how many rows of q belong to sequences."""

    q: Tensor
    kv_cache: Tensor
    block_table: Tensor
    seq_lens: Tensor
    query_start: Tensor
    rows: int

    def float(self) -> PagedBatch:
        """The same values in fp32: what the reference is computed from."""
        return PagedBatch(
            self.q.float(),
            self.kv_cache.float(),
            self.block_table,
            self.seq_lens,
            self.query_start,
            self.rows,
        )

    def run(self, function: Any, **options: Any) -> Tensor:
        """`function(q, ..., out, scale, window, cap)` into an output full of sevens."""
        out = torch.full_like(self.q, 7.0, memory_format=torch.contiguous_format)
        head_dim = self.kv_cache.shape[-1]
        rule = {"scale": head_dim**-0.5, "sliding_window": 0, "soft_cap": 0.0} | options
        indices = (self.block_table, self.seq_lens, self.query_start)
        function(self.q, self.kv_cache, *indices, out, *rule.values())
        return out


def paged_batch(
    heads: Heads,
    sequences: Sequence[tuple[int, int]],
    dtype: torch.dtype = torch.float32,
    *,
    block_size: int = 16,
    padding_rows: int = 0,
    padding_sequences: int = 0,
    width: int = 0,
) -> PagedBatch:
    """A batch of (length, query rows) sequences on shuffled blocks; q is a strided slice of qkv.

    The block table has one entry more than is needed, or `width`: kernels are compiled for a width.
    """
    counts = [-(-length // block_size) for length, _ in sequences]
    blocks = sum(counts) + 1
    entries = width or max(counts, default=0) + 1
    table = torch.zeros(len(counts) + padding_sequences, entries, dtype=torch.int32)
    for i, chunk in enumerate(torch.randperm(blocks)[: blocks - 1].int().split(counts)):
        table[i, : len(chunk)] = chunk
    rows = sum(count for _, count in sequences)
    starts = [0, *accumulate(count for _, count in sequences), *([rows] * padding_sequences)]
    lengths = [length for length, _ in sequences] + [0] * padding_sequences
    width = heads.query * heads.dim
    qkv = torch.randn(rows + padding_rows, width + 2 * heads.key * heads.dim).to(dtype)
    cache = torch.randn(2, blocks, block_size, heads.key, heads.dim).to(dtype)
    starts_tensor = torch.tensor(starts, dtype=torch.int32)
    return PagedBatch(
        qkv[:, :width], cache, table, torch.tensor(lengths, dtype=torch.int32), starts_tensor, rows
    )
