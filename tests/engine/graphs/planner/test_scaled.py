"""The pieces of an fp8 decoder for a GPU: quantisation in norms, products on fp8 tensor cores."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.cuda_child import SM_90, in_a_gpu_build

from vcc.engine.graphs.planner.pieces import compile_piece
from vcc.engine.ops.triton.wrapped_scaled import BY_BLOCK, BY_ROW
from vcc.engine.torch_shim.fx_wrapper import cuda_options


@pytest.mark.parametrize("layout", ["tensor-static", pytest.param("block", marks=pytest.mark.slow)])
def test_a_seam_is_fused_quantisations_and_four_products(layout: str) -> None:
    """No matrix product of torch is left, and nothing is dequantised on the way."""

    def body() -> Any:
        from support.decoders import SHAPE, spec
        from support.fp8_checkpoints import BLOCK_SIZES, LAYOUTS

        from vcc.engine.config.target import Target
        from vcc.engine.config.types import (
            DEFAULT_SPLITTING_OPS,
            CompilationConfig,
            PassConfig,
        )
        from vcc.engine.ops.choice import OpChoice
        from vcc.engine.ops.register import load_ops
        from vcc.engine.partition.split import split
        from vcc.engine.passes.apply import PASSES, apply
        from vcc.engine.passes.base import PassContext
        from vcc.engine.trace.decoder import decoder_trace
        from vcc.engine.trace.trace import trace

        load_ops()
        sizes = BLOCK_SIZES if layout == "block" else {}
        found = spec("llama", 2, quantization_config=LAYOUTS[layout], **sizes)
        ops = OpChoice(frozenset({"rms_norm", "silu_and_mul"}), "triton")
        with torch.device("cuda"):
            request = decoder_trace(found, torch.bfloat16, ops, SHAPE)
        fusions = PassConfig(fuse_norm_quant=True, fuse_act_quant=True)
        context = PassContext(CompilationConfig(pass_config=fusions), target=Target.parse("sm_90"))
        traced = apply(trace(request), PASSES, context).traced
        seam = split(traced, DEFAULT_SPLITTING_OPS, ()).unique[1]
        made = compile_piece(seam, SM_90, cuda_options({}), strided=range(9))
        kernels = [work.kernel for work in made.work if not hasattr(work, "dtype")]
        warps = {one.warps for one in kernels if one.function == "scaled_linear"}
        return [one.function for one in kernels], len(made.work), list(warps)

    names, count, warps = in_a_gpu_build(body)
    assert count == len(names)
    assert warps == [(BY_BLOCK if layout == "block" else BY_ROW)["num_warps"]]
    assert names.count("scaled_linear") == 4
    assert names.count("norm_quant") == 2
    assert names.count("gated_quant") == 1
