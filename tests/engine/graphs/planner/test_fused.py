"""Fusions on the way to a GPU: operators become launches of Triton kernels, and nodes are fewer."""

from __future__ import annotations

from typing import Any

from support.cuda_child import SM_90, in_a_gpu_build

ALL = frozenset({"rms_norm", "silu_and_mul", "gelu_tanh_and_mul", "rotary_embedding"})


def planned(arch: str, *, fused: bool, **fields: Any) -> dict[str, Any]:
    """Kernels of a decoder of two layers by number of launches, and the operators of the cuts."""

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
            choice = OpChoice(ALL, "triton")
            traced = trace(decoder_trace(spec(arch, 2, **fields), torch.bfloat16, choice, SHAPE))
        context = PassContext(
            CompilationConfig(splitting_ops=DEFAULT_SPLITTING_OPS),
            Target.parse("sm_90"),
            Dtype.BF16,
            ops=ALL if fused else frozenset(),
        )
        reports = apply(traced, PASSES, context).reports
        pieces = split(traced, DEFAULT_SPLITTING_OPS, ())
        launches: dict[str, int] = {}
        for piece in pieces.unique:
            made = compile_piece(piece, SM_90, cuda_options({}), strided=range(16))
            for work in made.work:
                name = "product" if hasattr(work, "dtype") else work.kernel.function
                launches[name] = launches.get(name, 0) + pieces.calls[piece.id]
        return {
            "launches": launches,
            "ops": [call.target for call in pieces.program.calls if call.kind == "op"],
            "fired": {one.name: one.matches for one in reports if one.matches},
        }

    found: dict[str, Any] = in_a_gpu_build(body)
    return found


def total(found: dict[str, Any]) -> int:
    return sum(found["launches"].values()) + len(found["ops"])


def test_queries_and_keys_of_qwen3_are_normed_and_rotated_by_one_launch() -> None:
    """Two norms, a rotation and the copies that lay rows out: 2 nodes less in a layer."""
    plain, fused = (planned("qwen3", fused=on) for on in (False, True))
    assert fused["fired"]["fuse_qk_norm_rope"] == 2
    assert fused["launches"]["qk_norm_rope"] == 2
    assert "rotary_embedding" not in fused["launches"]
    assert (total(plain), total(fused)) == (30, 26)


def test_rotated_keys_go_straight_into_the_cache() -> None:
    """A rotation and the copy before it; the first layer has both of its own."""
    plain, fused = (planned("llama", fused=on) for on in (False, True))
    assert fused["fired"]["fuse_rope_kv_write"] == 2
    assert fused["ops"] == ["vcc::rope_kv_write.default", "vcc::paged_attention.default"] * 2
    assert "rotary_embedding" not in fused["launches"]
    assert (total(plain), total(fused)) == (26, 23)
