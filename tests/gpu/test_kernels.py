"""Each Triton kernel on a device, in every element type, against plain torch in fp32."""

from __future__ import annotations

import pytest
import torch
from support.kernel_cases import CASES, Backend
from support.triton_ops import TritonOps

pytestmark = pytest.mark.gpu

DTYPES = ("float32", "float16", "bfloat16")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(CASES))
def test_kernel(name: str, dtype: str) -> None:
    print("torch seed", torch.seed())
    CASES[name](Backend(TritonOps(interpreted=False), getattr(torch, dtype), "cuda"))
