"""The peer's operators by Triton's interpreter on the CPU, beside the CPU kernels; prints errors.

A process of its own: TRITON_INTERPRET must be set before Triton is imported.
"""

from __future__ import annotations

import json

import torch
from peer_ops import CudaOps
from torch import Tensor

HEADS, KV, DIM, BLOCK, WIDTH = 4, 2, 32, 16, 8


def step(tokens: int, seqs: int, past: int) -> tuple[Tensor, ...]:
    """Slots, block table, lengths and starts of `seqs` sequences of `tokens` new tokens each."""
    table = torch.arange(seqs * WIDTH, dtype=torch.int32).view(seqs, WIDTH)
    places = [(b, past + i) for b in range(seqs) for i in range(tokens)]
    slots = [int(table[b, p // BLOCK]) * BLOCK + p % BLOCK for b, p in places]
    lengths = torch.full((seqs,), past + tokens, dtype=torch.int32)
    starts = torch.arange(seqs + 1, dtype=torch.int32) * tokens
    return torch.tensor(slots, dtype=torch.int32), table, lengths, starts


def error(ops: CudaOps, tokens: int, seqs: int, past: int) -> float:
    """Largest difference of attention after a KV write; the caches must be equal."""
    slots, table, lengths, starts = step(tokens, seqs, past)
    qkv = torch.randn(tokens * seqs, (HEADS + 2 * KV) * DIM)
    q, k, v = qkv.split([HEADS * DIM, KV * DIM, KV * DIM], -1)
    cache = torch.randn(2, seqs * WIDTH, BLOCK, KV, DIM)
    other, outs = cache.clone(), [torch.empty(tokens * seqs, HEADS * DIM) for _ in range(2)]
    ops.kv_write(k, v, cache, slots)
    torch.ops.vcc.kv_write(k, v, other, slots)
    if not torch.equal(cache, other):
        return float("inf")
    ops.paged_attention(q, cache, table, lengths, starts, outs[0], 0.2)
    torch.ops.vcc.paged_attention(q, other, table, lengths, starts, outs[1], 0.2, 0, 0.0)
    return float((outs[0] - outs[1]).abs().max())


if __name__ == "__main__":
    torch.manual_seed(0)
    made = CudaOps("sm_90", BLOCK, WIDTH)
    print(json.dumps({"decode": error(made, 1, 2, 20), "prefill": error(made, 19, 1, 0)}))
