"""Supported models on which each fusion fires, with equal results and what it saves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.decoders import SHAPE, spec
from support.fp8_block import factory
from support.fusions import by_name, switched_on
from support.transformers_traces import of_transformers

from vcc.engine.config.levels import PASS_RULES
from vcc.engine.config.types import DEFAULT_SPLITTING_OPS, CompilationConfig
from vcc.engine.models.shapes import InputShape
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.register import load_ops
from vcc.engine.passes.apply import PASSES, apply
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.prove import Proof, prove
from vcc.engine.trace.decoder import decoder_trace
from vcc.engine.trace.module import module_trace
from vcc.engine.trace.trace import trace
from vcc.engine.types import Traced

pytestmark = pytest.mark.filterwarnings("error:erase_node:UserWarning")
OPS = frozenset({"rms_norm", "silu_and_mul", "gelu_tanh_and_mul", "rotary_embedding"})
CONTEXT = PassContext(CompilationConfig(splitting_ops=DEFAULT_SPLITTING_OPS))
GROUPED = {"num_key_value_heads": 2}


def of_decoder(arch: str, ops: frozenset[str] = OPS) -> Traced:
    load_ops()
    return trace(decoder_trace(spec(arch, 2), torch.float32, OpChoice(ops), SHAPE))


def of_module() -> Traced:
    return trace(module_trace(factory(), (InputShape.parse("x=1-32x64"),), torch.float32))


EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32, "pad_token_id": 0}
MODELS: dict[str, tuple[Callable[[], Traced], dict[str, int]]] = {
    "qwen3": (lambda: of_decoder("qwen3"), {"fuse_qk_norm_rope": 2}),
    "llama": (lambda: of_decoder("llama"), {"fuse_rope_kv_write": 2, "fuse_norm_linear": 5}),
    "gemma2 in plain torch": (
        lambda: of_decoder("gemma2", frozenset()),
        {"fuse_rms_norm": 9, "fuse_add_rms_norm": 4, "fuse_act_mul": 2},
    ),
    "transformers' llama": (
        lambda: of_transformers("Llama", **GROUPED),
        {"fuse_rms_norm": 5, "fuse_add_rms_norm": 4},
    ),
    "transformers' phi3": (
        lambda: of_transformers("Phi3", **GROUPED, pad_token_id=0),
        {"fuse_rms_norm": 5, "fuse_act_mul": 2},
    ),
    "transformers' mixtral": (
        lambda: of_transformers("Mixtral", **GROUPED, num_local_experts=4, num_experts_per_tok=2),
        {"fuse_moe_router": 2, "fuse_moe_experts": 2},
    ),
    "transformers' qwen3_moe": (
        lambda: of_transformers(
            "Qwen3Moe", **GROUPED, num_experts=4, norm_topk_prob=False, **EXPERTS
        ),
        {"fuse_moe_router": 2, "fuse_moe_experts": 2},
    ),
    "an fp8 block": (
        of_module,
        {"fuse_rms_norm": 2, "fuse_norm_quant": 2, "fuse_act_quant": 1, "fuse_act_mul": 1},
    ),
}


def proofs(graph: Traced, names: frozenset[str]) -> dict[str, Proof]:
    """Each named pass after those before it; what its patterns need runs too."""
    found = {}
    for one in PASSES:
        context = switched_on(one, CONTEXT)
        if one.name in names:
            found[one.name] = prove(graph, one, context)
        elif one.name in ("eliminate_noops", "coalesce_splits", "fuse_rms_norm", "fuse_act_mul"):
            apply(graph, [one], context)
    return found


REPEATED = ("transformers' phi3", "transformers' qwen3_moe")
"""What fires there fires on another model too."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in REPEATED else n for n in MODELS],
)
def test_fusions_fire_on_supported_models_with_equal_results(name: str) -> None:
    make, wanted = MODELS[name]
    found = proofs(make(), frozenset(wanted))
    assert {one: proof.report.matches for one, proof in found.items()} == wanted
    for one, proof in found.items():
        assert proof.equal, (one, proof.error)
        assert proof.settled, one
        assert proof.report.saved.launches > 0, one
        assert proof.report.saved.bytes > 0, one


def test_every_fusion_has_a_model() -> None:
    """Attention with fp8 has no checkpoint yet, sums over ranks no kernel: test_projections.py."""
    fired = {one for _, wanted in MODELS.values() for one in wanted}
    ours = {rule.name for rule in PASS_RULES if rule.name.startswith("fuse_")}
    assert ours - fired == {"fuse_attention_quant", "fuse_all_reduce_norm"}
    assert all(by_name(one) for one in ours)
