"""The pieces of a decoder with fp8 experts for a GPU: a node table without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
from support.cuda_child import fused_seam, in_a_gpu_build

CELLS = (
    ("qwen3_moe", "block"),
    pytest.param("mixtral", "tensor-static", marks=pytest.mark.slow),
    pytest.param("qwen2_moe", "channel-token", marks=pytest.mark.slow),
)


@pytest.mark.parametrize(("arch", "layout"), CELLS)
def test_experts_are_four_launches_and_stay_in_fp8(arch: str, layout: str) -> None:
    """The router is the one product of the model's dtype, and no weight is widened on the way."""

    def body() -> Any:
        from support.decoders import spec
        from support.fp8_checkpoints import BLOCK_SIZES, with_experts
        from support.fp8_experts import EXPERT_SIZES

        sizes = BLOCK_SIZES | EXPERT_SIZES.get(arch, {}) if layout == "block" else {}
        sizes |= {"decoder_sparse_step": 1} if arch == "qwen2_moe" else {}
        made = fused_seam(spec(arch, 2, quantization_config=with_experts(layout), **sizes))
        kernels = [work.kernel.function for work in made if not hasattr(work, "dtype")]
        products = [bool(work.scaling) for work in made if hasattr(work, "dtype")]
        return kernels, products

    names, products = in_a_gpu_build(body)
    wanted = ("expert_tiles", "scaled_expert_up", "scaled_expert_down", "expert_sum")
    assert [names.count(name) for name in wanted] == [1, 1, 1, 1], names
    shared = arch == "qwen2_moe"
    assert products.count(True) == (4 if shared else 2), names
    assert products.count(False) == (2 if shared else 1), names
    assert "scaled_linear" not in names, "each is known as a product"
    assert names.count("topk_softmax") == 1
