"""The pieces of an fp8 decoder for a GPU: quantisation in norms, products on fp8 tensor cores."""

from __future__ import annotations

from typing import Any

import pytest
from support.cuda_child import fused_seam, in_a_gpu_build

from vcc.engine.ops.triton.wrapped_scaled import BY_BLOCK, BY_ROW


@pytest.mark.parametrize("layout", ["tensor-static", pytest.param("block", marks=pytest.mark.slow)])
def test_a_seam_is_fused_quantisations_and_four_products(layout: str) -> None:
    """No matrix product of torch is left, and nothing is dequantised on the way."""

    def body() -> Any:
        from support.decoders import spec
        from support.fp8_checkpoints import BLOCK_SIZES, LAYOUTS

        sizes = BLOCK_SIZES if layout == "block" else {}
        made = fused_seam(spec("llama", 2, quantization_config=LAYOUTS[layout], **sizes))
        kernels = [work.kernel for work in made if not hasattr(work, "dtype")]
        warps = {one.warps for one in kernels if one.function == "scaled_linear"}
        return [one.function for one in kernels], len(made), list(warps)

    names, count, warps = in_a_gpu_build(body)
    assert count == len(names)
    assert warps == [(BY_BLOCK if layout == "block" else BY_ROW)["num_warps"]]
    assert names.count("scaled_linear") == 4
    assert names.count("norm_quant") == 2
    assert names.count("gated_quant") == 1
