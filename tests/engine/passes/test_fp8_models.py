"""The fusions with fp8 fire on decoders with fp8 weights, and their logits keep to the rule."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from support.decoders import SHAPE, spec
from support.fp8_checkpoints import BLOCK_SIZES, LAYOUTS
from support.fusions import operators, switched_on

from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.register import load_ops
from vcc.engine.passes.apply import PASSES, apply
from vcc.engine.passes.prove import prove
from vcc.engine.trace.decoder import decoder_trace
from vcc.engine.trace.trace import trace

LAYERS = 1
KERNELS = frozenset({"rms_norm", "silu_and_mul"})
STATIC = {
    "rms_norm_quant": 1, "fused_add_rms_norm_quant": 2 * LAYERS - 1, "silu_and_mul_quant": LAYERS,
}  # fmt: skip
MOVING = {f"{name}_dynamic": count for name, count in STATIC.items()}


def fused(layout: str, arch: str = "llama") -> tuple[Any, list[Any]]:
    """A decoder after all passes that go with kernels, and the proofs of the two with fp8."""
    load_ops()
    sizes = BLOCK_SIZES if "block" in layout else {}
    found = spec(arch, LAYERS, quantization_config=LAYOUTS[layout], **sizes)
    graph = trace(decoder_trace(found, torch.bfloat16, OpChoice(KERNELS), SHAPE))
    proofs = []
    for one in PASSES:
        if one.name in ("fuse_norm_quant", "fuse_act_quant"):
            proofs.append(prove(graph, one, switched_on(one)))
        elif one.name in ("eliminate_noops", "coalesce_splits"):
            apply(graph, [one], switched_on(one))
    return graph, proofs


@pytest.mark.parametrize(
    ("layout", "wanted"),
    [("tensor-static", STATIC), ("channel-token", MOVING), ("block", MOVING)],
)
def test_quantisation_goes_into_norms_and_activations(layout: str, wanted: dict[str, int]) -> None:
    graph, proofs = fused(layout)
    names = Counter(name.removeprefix("vcc::").partition(".")[0] for name in operators(graph))
    assert {name: names[name] for name in wanted} == wanted
    assert names["scaled_linear"] == 4 * LAYERS
    for proof in proofs:
        assert proof.equal, proof
