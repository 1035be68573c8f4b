"""fp8 products on a device: the Triton kernel against plain torch, in every form and shape."""

from __future__ import annotations

import pytest
import torch
from support.scaled_cases import cases, check, check_spread

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_products_are_those_of_plain_torch(dtype: torch.dtype) -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this device has no fp8")
    for case in cases(dtype, "cuda"):
        check(case)


def test_scales_are_spread_for_more_rows() -> None:
    check_spread("cuda")
