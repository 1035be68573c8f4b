"""Low-rank adapters by Triton's interpreter against plain torch.

    TRITON_INTERPRET=1 python -m support.lora_cases float32

Inputs are fresh each time; the seed is printed.
"""

from __future__ import annotations

import sys

import torch

from support.kernel_cases import held
from vcc.engine.ops import native_lora
from vcc.engine.ops.triton import wrapped_lora

SIZES: tuple[tuple[int, int, int, int, tuple[int, ...]], ...] = (
    (1, 4, 16, 96, (64, 32, 32)),
    (37, 2, 4, 50, (24, 23)),
    (20, 1, 8, 64, (70,)),
    (18, 3, 40, 130, (65, 1, 66)),
)
"""Rows, slots, rank, width of a row, and of each part of the result."""


def check(dtype: torch.dtype, device: str = "cpu") -> None:
    """Every size, with rows of each slot and of none; a row of none keeps its bits."""
    torch.set_default_device(device)
    try:
        _check(dtype)
    finally:
        torch.set_default_device(None)


def _check(dtype: torch.dtype) -> None:
    for tokens, count, rank, inner, widths in SIZES:
        parts, outer = len(widths), sum(widths)
        x, y = torch.randn(tokens, inner).to(dtype), torch.randn(tokens, outer).to(dtype)
        a = (torch.randn(count, parts * rank, inner) / inner**0.5).to(dtype)
        b = (torch.randn(count, outer, rank) / rank**0.5).to(dtype)
        slots = torch.randint(-1, count, (tokens,), dtype=torch.int32)
        slots[tokens // 2] = -1
        a[count - 1, 0, 0] = float("nan") if tokens == 37 else 1.0
        low = wrapped_lora.lora_shrink(x, a, slots, through=lambda k: k)
        found = wrapped_lora.lora_expand(y.clone(), low, b, slots, widths, through=lambda k: k)
        assert torch.equal(found[slots < 0], y[slots < 0])
        exact = native_lora.lora_shrink(x.float(), a.float(), slots)
        want = native_lora.lora_expand(y.float(), exact, b.float(), slots, widths)
        peer_low = native_lora.lora_shrink(x, a, slots).to(dtype).float()
        peer = native_lora.lora_expand(y, peer_low, b, slots, widths)
        assert torch.equal(found.isnan(), want.isnan())
        held(found.nan_to_num(), want.nan_to_num(), peer.nan_to_num())


if __name__ == "__main__":
    print("torch seed", torch.seed())
    check(getattr(torch, sys.argv[1]))
