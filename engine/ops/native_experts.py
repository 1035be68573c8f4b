"""Routing and experts in plain torch: no shape depends on data, so a graph can hold every step.

T is the number of rows, k of experts a row, E of experts, H the width of a row, I of an expert.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ROWS = 16
"""Rows of a block: each block holds rows of one expert, the last one of an expert is padded."""

BLOCKS_AT_ONCE = 4
"""Blocks multiplied in one product: bounds the copied weights at so many experts."""

Products = Callable[[Tensor, Tensor], Tensor]
"""fp32 results `[n, ROWS, H]` of blocks of rows of that shape, and the expert `[n]` of each."""


def topk_softmax(logits: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """The k likeliest experts of each row of `logits [T, E]`, likeliest first.

    Returns:
        Their probabilities, fp32 [T, k] (of the k alone when `renormalise`), and ids, int32 [T, k].
    """
    values, ids = torch.softmax(logits.float(), dim=-1).topk(top_k, dim=-1)
    if renormalise:
        values = values / values.sum(-1, keepdim=True)
    return values.contiguous(), ids.to(torch.int32)


def moe_experts(x: Tensor, gate_up: Tensor, down: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
    """Gated experts: the sum over k of `weights * down(silu(gate(x)) * up(x))`, by row.

    Args:
        x: [T, H].
        gate_up: [E, 2 * I, H], the rows of gate before those of up.
        down: [E, H, I].
        weights: fp32 [T, k].
        ids: int32 [T, k], each from 0 to E - 1.

    Returns:
        [T, H] in the dtype of x; sums are fp32, `silu(gate) * up` is rounded on the way.
    """

    def products(rows: Tensor, owners: Tensor) -> Tensor:
        wide = torch.bmm(rows.float(), gate_up[owners].float().transpose(1, 2))
        gate, up = wide.chunk(2, dim=-1)
        inner = (torch.nn.functional.silu(gate) * up).to(rows.dtype)
        return torch.bmm(inner.float(), down[owners].float().transpose(1, 2))

    return in_blocks(x, weights, ids, gate_up.shape[0], products)


def in_blocks(x: Tensor, weights: Tensor, ids: Tensor, experts: int, products: Products) -> Tensor:
    """The weighted sum over the experts of each row, computed in blocks of rows of one expert.

    Args:
        x: [T, H].
        weights: fp32 [T, k].
        ids: int32 [T, k], each from 0 to `experts` - 1.
        experts: how many there are.
        products: what the experts make of their rows.

    Returns:
        [T, H] in the dtype of x; sums are fp32.
    """
    tokens, top_k = ids.shape
    home, owners = _blocks(ids.flatten().long(), experts)
    padded = x.new_zeros((owners.shape[0] * ROWS, x.shape[1]))
    padded.index_copy_(0, home, x.repeat_interleave(top_k, dim=0))
    results = [
        products(rows, owner)
        for rows, owner in zip(
            padded.view(-1, ROWS, x.shape[1]).split(BLOCKS_AT_ONCE),
            owners.split(BLOCKS_AT_ONCE),
            strict=True,
        )
    ]
    chosen = torch.cat(results).flatten(0, 1).index_select(0, home)
    each = chosen.view(tokens, top_k, x.shape[1])
    return (each * weights.float()[..., None]).sum(1).to(x.dtype)


def _blocks(ids: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """The padded row of each (row, choice) pair, and the expert of each block."""
    pairs = ids.shape[0]
    each = torch.arange(experts, device=ids.device)
    mine = ids[:, None] == each
    ends = ((mine.sum(0) + ROWS - 1) // ROWS).cumsum(0)
    rank = mine.cumsum(0).gather(1, ids[:, None])[:, 0] - 1
    home = torch.where(each == 0, 0, ends.roll(1))[ids] * ROWS + rank
    most = max(1, -(-pairs // ROWS) + min(experts, pairs))
    block = torch.arange(most, device=ids.device)
    return home, torch.searchsorted(ends, block, right=True).clamp(max=experts - 1)
