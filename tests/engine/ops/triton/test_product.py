"""Products of batches in Triton, by its interpreter; bf16 is left to the device."""

from __future__ import annotations

import pytest
from support.interpreted import run_interpreted


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_by_the_interpreter(dtype: str) -> None:
    run_interpreted("product_cases", dtype)


def test_the_kernel_compiles_with_its_integers_as_constants() -> None:
    """As torch 2.11 does to see what it writes; failing that, its inputs count as written."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    from vcc.engine.ops.triton.product import product

    constants = {"rows": 8, "columns": 8, "depth": 8, "TILE_M": 64, "TILE_N": 64, "TILE_K": 32}
    signature = {name: "constexpr" if name in constants else "*bf16" for name in product.arg_names}
    values = {(product.arg_names.index(name),): value for name, value in constants.items()}
    source = triton.compiler.ASTSource(product, signature, values, {})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert made.asm["ttir"].count("tt.store") == 1
