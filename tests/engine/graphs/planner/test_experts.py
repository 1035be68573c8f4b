"""Experts on the way to a GPU: launches of Triton kernels inside the pieces, for every layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import ARCHITECTURES, OWN_SIZES, SIZES
from support.cuda_child import SM_90, in_a_gpu_build
from support.flow import ask

from vcc.cache.store import Store
from vcc.engine.events import NullEvents
from vcc.engine.request import settle
from vcc.engine.verify_interpret import interpret

KERNELS = ("topk_softmax", "expert_tiles", "expert_up", "expert_down", "expert_sum")


def launches(arch: str) -> dict[str, int]:
    """Launches of each kernel in a decoder of two layers."""

    def body() -> Any:
        import torch
        from support.decoders import SHAPE, spec

        from vcc.engine.config.modes import Dtype
        from vcc.engine.config.target import Target
        from vcc.engine.config.types import DEFAULT_SPLITTING_OPS, CompilationConfig
        from vcc.engine.graphs.planner.pieces import compile_piece
        from vcc.engine.ops.choice import OpChoice
        from vcc.engine.ops.register import load_ops
        from vcc.engine.partition.split import split
        from vcc.engine.passes.apply import PASSES, apply
        from vcc.engine.passes.base import PassContext
        from vcc.engine.torch_shim.fx_wrapper import cuda_options
        from vcc.engine.trace.decoder import decoder_trace
        from vcc.engine.trace.trace import trace

        load_ops()
        with torch.device("cuda"):
            choice = OpChoice(frozenset(), "triton")
            traced = trace(decoder_trace(spec(arch, 2), torch.bfloat16, choice, SHAPE))
        context = PassContext(
            CompilationConfig(splitting_ops=DEFAULT_SPLITTING_OPS),
            Target.parse("sm_90"),
            Dtype.BF16,
            ops=frozenset(),
        )
        apply(traced, PASSES, context)
        pieces = split(traced, DEFAULT_SPLITTING_OPS, ())
        found: dict[str, int] = {}
        for piece in pieces.unique:
            made = compile_piece(piece, SM_90, cuda_options({}), strided=range(16))
            for work in made.work:
                name = "product" if hasattr(work, "dtype") else work.kernel.function
                found[name] = found.get(name, 0) + pieces.calls[piece.id]
        return found

    found: dict[str, int] = in_a_gpu_build(body)
    return found


def test_a_layer_of_experts_is_five_launches() -> None:
    found = launches("mixtral")
    assert {name: found.get(name) for name in KERNELS} == dict.fromkeys(KERNELS, 2)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["mixtral", "qwen3_moe", "qwen2_moe"])
def test_node_tables_with_experts_compute_the_model(arch: str, tmp_path: Path) -> None:
    config = {"architectures": [ARCHITECTURES[arch]], **SIZES, **OWN_SIZES[arch]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 48, "max_model_len": 64}
    settled = settle(ask(tmp_path, weights="none", target="sm_90", dtype="fp32", **limits))
    interpret(settled, Store.open(tmp_path / "store"), (1, 11), NullEvents())
