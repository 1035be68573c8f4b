"""Products of batches in Triton, by its interpreter; bf16 is left to the device."""

from __future__ import annotations

import pytest
from support.interpreted import run_interpreted


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_by_the_interpreter(dtype: str) -> None:
    run_interpreted("product_cases", dtype)
