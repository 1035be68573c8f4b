"""The cases of kernel_cases.py in parts, for processes that compile side by side."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from support.kernel_cases import CASES, HEADS_AND_RULES, LONG_BATCHES, PRODUCTS, Backend
from support.sampling_cases import SHAPES
from support.triton_ops import TritonOps

PARTS: Mapping[str, int] = {
    "attention": len(HEADS_AND_RULES),
    "attention_long": len(LONG_BATCHES),
    "linear": len(PRODUCTS),
    "sample": len(SHAPES) + 1,
}
"""Parts of the cases whose kernels take long to compile; the others have one."""


def on_device(name: str, dtype: str, part: int) -> None:
    """One part of a case on the GPU.

    Raises:
        AssertionError: with the seed that the inputs were made from.
    """
    torch.set_num_threads(1)
    seed = torch.seed()
    ops, chosen = TritonOps(interpreted=False), part if name in PARTS else None
    try:
        CASES[name](Backend(ops, getattr(torch, dtype), "cuda", part=chosen))
    except Exception as error:
        raise AssertionError(f"{name} {dtype} part {part}, torch seed {seed}: {error}") from error
