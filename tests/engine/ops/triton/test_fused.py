"""The fused kernels in Triton: right by the interpreter, and compiled for a device with fp8."""

from __future__ import annotations

import pytest
from support.cuda_child import in_a_gpu_build
from support.interpreted import run_interpreted


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_kernels_by_the_interpreter(dtype: str) -> None:
    run_interpreted("fused_cases", "--dtype", dtype)


def test_every_kernel_is_one_launch_of_a_piece_for_sm_90() -> None:
    """Compiled without a device; a matrix product is no kernel of ours and none is there."""

    def body() -> dict[str, list[str]]:
        import torch
        from support.cuda_child import SM_90
        from support.lowered import lowered

        from vcc.engine.graphs.planner.pieces import compile_piece
        from vcc.engine.torch_shim.fx_wrapper import cuda_options

        found = {}
        for name, pieces in lowered(torch.bfloat16).items():
            (piece,) = pieces.unique
            made = compile_piece(piece, SM_90, cuda_options({}))
            names = [work.kernel.function for work in made.work]
            found[name] = ["copy" if one.startswith("triton_poi") else one for one in names]
        return found

    found = in_a_gpu_build(body)
    norm, act = ["norm_quant"], ["gated_quant"]
    assert found == {
        "rms_norm_quant": norm,
        "rms_norm_quant_dynamic": norm,
        "fused_add_rms_norm_quant": norm,
        # Scales of blocks lie by block; this piece hands them out by row.
        "fused_add_rms_norm_quant_dynamic": [*norm, "copy"],
        "silu_and_mul_quant": act,
        "silu_and_mul_quant_dynamic": act,
        "gelu_and_mul": ["gated"],
        "gelu_and_mul_quant": act,
        "gelu_and_mul_quant_dynamic": act,
        "qk_norm_rope": ["qk_norm_rope"],
        "rms_norm_linear": ["rms_norm_linear"],
        "topk_softmax": ["topk_softmax"],
        "topk_sigmoid": ["topk_sigmoid"],
        "moe_experts": ["expert_tiles", "expert_up", "expert_down", "expert_sum"],
    }
