"""Experts with fp8 weights on a device: the Triton kernels against one expert after another."""

from __future__ import annotations

import pytest
import torch
from support.scaled_expert_cases import check

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_experts_are_one_after_another(dtype: torch.dtype) -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this device has no fp8")
    print("torch seed", torch.seed())
    check(dtype, "cuda")
