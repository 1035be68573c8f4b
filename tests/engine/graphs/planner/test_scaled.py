"""The pieces of an fp8 decoder for a GPU: quantisation in norms, products on fp8 tensor cores."""

from __future__ import annotations

from typing import Any

import pytest
from support.cuda_child import fused_seam, in_a_gpu_build

from vcc.engine.ops.triton.wrapped_scaled import BY_BLOCK, BY_ROW

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("layout", "scales"),
    [
        ("tensor-static", ["mixed", "tensor", "mixed", "tensor"]),
        pytest.param("tensor-token", ["rows"] * 4, marks=SLOW),
        pytest.param("block", ["blocks"] * 4, marks=SLOW),
    ],
)
def test_a_seam_is_fused_quantisations_and_four_products(layout: str, scales: list[str]) -> None:
    """No matrix product of torch is left, nothing is dequantised on the way, no scale copied."""

    def body() -> Any:
        from support.decoders import spec
        from support.fp8_checkpoints import BLOCK_SIZES, LAYOUTS

        from vcc.engine.graphs.planner.scaled import variants_of

        sizes = {**BLOCK_SIZES, "hidden_size": 256} if layout == "block" else {}
        made = fused_seam(spec("llama", 2, quantization_config=LAYOUTS[layout], **sizes))
        products = [work for work in made if hasattr(work, "dtype")]
        kernels = [one.scaling.launch.kernel for one in products]
        told = [[one.c, one.dtype, one.scaling.out, one.scaling.scales] for one in products]
        family = (64, 64, "float8_e4m3fn", False, "bfloat16", "rows")
        ways = [[v.max_rows, v.tile_rows, v.tile_n] for v in variants_of(kernels[0], 0, family)]
        names = [work.kernel.function for work in made if not hasattr(work, "dtype")]
        return names, told, [one.warps for one in kernels], ways

    names, told, warps, ways = in_a_gpu_build(body)
    tiles = BY_BLOCK if layout == "block" else BY_ROW
    assert set(warps) == {tiles["num_warps"]}
    assert told == [[None, "float8_e4m3fn", "bfloat16", one] for one in sorted_as(told, scales)]
    assert ways == [
        *([tiles[way], tiles[way], tiles[f"{way}_COLUMNS"]] for way in ("LEAST", "FEW")),
        [0, tiles["TILE_ROWS"], tiles["TILE_COLUMNS"]],
    ]
    assert names.count("norm_quant") == 2
    assert names.count("gated_quant") == 1
    assert "scaled_linear" not in names
    copies = ("triton_poi_fused_clone", "triton_poi_fused_copy")
    assert not [name for name in names if name.startswith(copies)]


def sorted_as(told: list[Any], scales: list[str]) -> list[str]:
    """The scales in the order of the products; each as often as it is wanted."""
    found = [one[-1] for one in told]
    assert sorted(found) == sorted(scales)
    return found
