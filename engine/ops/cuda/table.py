"""Operators that `csrc/kernels` has, and how each call of one becomes a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vcc.engine.ops.cuda.call import CudaCall, Tensor, short_type
from vcc.engine.ops.cuda.gate import gate_call
from vcc.engine.ops.cuda.kv import kv_call
from vcc.engine.ops.cuda.norm import norm_call
from vcc.engine.ops.cuda.rope import rope_call
from vcc.engine.ops.cuda.router import router_call

Builder = Callable[[str, Mapping[str, Tensor], Mapping[str, Any]], CudaCall]

BUILDERS: Mapping[str, Builder] = {
    "rms_norm": norm_call,
    "fused_add_rms_norm": norm_call,
    "rms_norm_quant": norm_call,
    "rms_norm_quant_dynamic": norm_call,
    "fused_add_rms_norm_quant": norm_call,
    "fused_add_rms_norm_quant_dynamic": norm_call,
    "silu_and_mul": gate_call,
    "silu_and_mul_quant": gate_call,
    "silu_and_mul_quant_dynamic": gate_call,
    "gelu_and_mul": gate_call,
    "gelu_and_mul_quant": gate_call,
    "gelu_and_mul_quant_dynamic": gate_call,
    "rotary_embedding": rope_call,
    "qk_norm_rope": rope_call,
    "kv_write": kv_call,
    "rope_kv_write": rope_call,
    "topk_softmax": router_call,
    "topk_sigmoid": router_call,
}
"""Operator -> its launch. Kernels, cubins and this table have the same names."""


def cuda_call(op: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> CudaCall:
    """The launch of one call of an operator.

    Args:
        op: name inside `torch.ops.vcc`, one of BUILDERS.
        tensors: its tensor arguments by name.
        numbers: its other arguments by name, defaults filled in.

    Raises:
        CompileError: its kernels do not take this call; why is said.
    """
    first = next(iter(tensors))  # its element type chooses the kernel
    short_type(op, tensors[first], first)
    return BUILDERS[op](op, tensors, numbers)
