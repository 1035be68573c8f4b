"""The custom ops by name: the layer of each, and the operators that its kernels are. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CustomOpName:
    """One custom op, as configurations name it.

    Args:
        layer: class in `engine.ops.layers`; what a replacement takes the place of.
        operators: names in `torch.ops.vcc` that a kernel back end of the layer calls.
    """

    layer: str
    operators: tuple[str, ...]


CUSTOM_OPS: Mapping[str, CustomOpName] = {
    "gelu_tanh_and_mul": CustomOpName("GeluTanhAndMul", ("gelu_and_mul",)),
    "rms_norm": CustomOpName("RMSNorm", ("rms_norm", "fused_add_rms_norm")),
    "rotary_embedding": CustomOpName("RotaryEmbedding", ("rotary_embedding",)),
    "silu_and_mul": CustomOpName("SiluAndMul", ("silu_and_mul",)),
    "topk_softmax": CustomOpName("TopkSoftmax", ("topk_softmax",)),
}
"""Custom op -> its layer; in order of name."""

KNOWN_OPS = tuple(CUSTOM_OPS)
"""Names that `custom_ops` of a configuration may switch."""
