"""The pieces of a decoder with fp8 experts for a GPU: a node table without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.cuda_child import SM_90, in_a_gpu_build

from vcc.engine.graphs.planner.pieces import compile_piece
from vcc.engine.torch_shim.fx_wrapper import cuda_options

CELLS = (
    ("qwen3_moe", "block"),
    pytest.param("mixtral", "tensor-static", marks=pytest.mark.slow),
    pytest.param("qwen2_moe", "channel-token", marks=pytest.mark.slow),
)


@pytest.mark.parametrize(("arch", "layout"), CELLS)
def test_experts_are_four_launches_and_stay_in_fp8(arch: str, layout: str) -> None:
    """The router is the one product of the model's dtype, and no weight is widened on the way."""

    def body() -> Any:
        from support.decoders import SHAPE, spec
        from support.fp8_checkpoints import BLOCK_SIZES, with_experts
        from support.fp8_experts import EXPERT_SIZES

        from vcc.engine.config.target import Target
        from vcc.engine.config.types import DEFAULT_SPLITTING_OPS, CompilationConfig, PassConfig
        from vcc.engine.ops.choice import OpChoice
        from vcc.engine.ops.register import load_ops
        from vcc.engine.partition.split import split
        from vcc.engine.passes.apply import PASSES, apply
        from vcc.engine.passes.base import PassContext
        from vcc.engine.trace.decoder import decoder_trace
        from vcc.engine.trace.trace import trace

        load_ops()
        sizes = BLOCK_SIZES | EXPERT_SIZES.get(arch, {}) if layout == "block" else {}
        sizes |= {"decoder_sparse_step": 1} if arch == "qwen2_moe" else {}
        found = spec(arch, 2, quantization_config=with_experts(layout), **sizes)
        ops = OpChoice(frozenset({"rms_norm", "silu_and_mul"}), "triton")
        with torch.device("cuda"):
            request = decoder_trace(found, torch.bfloat16, ops, SHAPE)
        fusions = PassConfig(fuse_norm_quant=True, fuse_act_quant=True)
        context = PassContext(CompilationConfig(pass_config=fusions), target=Target.parse("sm_90"))
        traced = apply(trace(request), PASSES, context).traced
        seam = split(traced, DEFAULT_SPLITTING_OPS, ()).unique[1]
        made = compile_piece(seam, SM_90, cuda_options({}), strided=range(9))
        kernels = [work.kernel.function for work in made.work if not hasattr(work, "dtype")]
        products = sum(hasattr(work, "dtype") for work in made.work)
        return kernels, products

    names, products = in_a_gpu_build(body)
    wanted = ("expert_tiles", "scaled_expert_up", "scaled_expert_down", "expert_sum")
    assert [names.count(name) for name in wanted] == [1, 1, 1, 1], names
    shared = arch == "qwen2_moe"
    assert names.count("scaled_linear") == (4 if shared else 2)
    assert products == (2 if shared else 1), names
    assert names.count("topk_softmax") == 1
