"""The operator layers that models are built from."""

from __future__ import annotations

from vcc.engine.ops.custom_op import CustomOp
from vcc.engine.ops.layers_activation import GeluTanhAndMul, SiluAndMul
from vcc.engine.ops.layers_norm import RMSNorm
from vcc.engine.ops.layers_rotary import RotaryEmbedding
from vcc.engine.ops.layers_router import TopkSoftmax

__all__ = [
    "CustomOp",
    "GeluTanhAndMul",
    "RMSNorm",
    "RotaryEmbedding",
    "SiluAndMul",
    "TopkSoftmax",
]
