"""Launches of our Triton kernels become operators for fusions, and launches again for pieces."""

from __future__ import annotations

from typing import Any

from support.cuda_child import in_a_gpu_build


def test_launches_are_lifted_to_operators_and_lowered_to_the_same_launches() -> None:
    def body() -> Any:
        import torch
        from support.decoders import SHAPE, spec

        from vcc.engine.ops.choice import OpChoice
        from vcc.engine.ops.register import load_ops
        from vcc.engine.passes.base import PassContext
        from vcc.engine.passes.launches import lift, lower
        from vcc.engine.torch_shim.nodes import overload_name
        from vcc.engine.torch_shim.triton_nodes import is_triton_launch, launched_kernel
        from vcc.engine.trace.decoder import decoder_trace
        from vcc.engine.trace.trace import trace

        load_ops()
        ops = ("rms_norm", "silu_and_mul", "rotary_embedding", "gelu_tanh_and_mul")
        found = []
        for arch in ("qwen3", "gemma2"):
            with torch.device("cuda"):
                choice = OpChoice(frozenset(ops), "triton")
                graph = trace(decoder_trace(spec(arch, 1), torch.bfloat16, choice, SHAPE)).graph
            nodes = graph.graph
            before = [launched_kernel(n) for n in nodes.nodes if is_triton_launch(n)]
            lifted = lift(nodes)
            left = sum(map(is_triton_launch, nodes.nodes))
            names = [overload_name(n.target) or "" for n in nodes.nodes]
            called = [n for n in names if n.startswith("vcc::") and "kv" not in n]
            lowered = lower(nodes, frozenset(), PassContext(), lifted)
            nodes.lint()
            after = [launched_kernel(n) for n in nodes.nodes if is_triton_launch(n)]
            found.append([lifted, left, len(called) - 1, lowered, before == after, len(before)])
        return found

    for lifted, left, called, lowered, same, launches in in_a_gpu_build(body):
        assert lifted == launches == called == lowered > 3
        assert left == 0
        assert same


def test_operators_that_a_layer_called_stay_operators() -> None:
    """Their kernels are of another back end; so are those of what fuses them."""

    def body() -> Any:
        import torch
        from support.decoders import SHAPE, spec

        from vcc.engine.config.target import Target
        from vcc.engine.ops.choice import OpChoice
        from vcc.engine.ops.register import load_ops
        from vcc.engine.passes.apply import PASSES, apply
        from vcc.engine.passes.base import PassContext
        from vcc.engine.torch_shim.nodes import overload_name
        from vcc.engine.torch_shim.triton_nodes import is_triton_launch
        from vcc.engine.trace.decoder import decoder_trace
        from vcc.engine.trace.trace import trace

        load_ops()
        ops = frozenset({"rms_norm", "rotary_embedding"})
        with torch.device("cuda"):
            traced = trace(
                decoder_trace(spec("qwen3", 1), torch.bfloat16, OpChoice(ops, "cuda"), SHAPE)
            )
        apply(traced, PASSES, PassContext(target=Target.parse("sm_90"), ops=ops))
        nodes = traced.graph.graph.nodes
        names = [overload_name(n.target) or "" for n in nodes]
        return [sum(map(is_triton_launch, nodes)), names.count("vcc::qk_norm_rope.default")]

    assert in_a_gpu_build(body) == [0, 1]
