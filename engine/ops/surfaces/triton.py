"""Our own Triton kernels, launched inside pieces through `engine.ops.triton.wrapped`.

A build compiles each for its target; at run time they are cubins, and Triton is not there.
"""

from __future__ import annotations

from vcc.engine.ops.surfaces.row import Limit, Row, Strides, table

WRAPPED = "vcc.engine.ops.triton.wrapped"
FUSED = "vcc.engine.ops.triton.wrapped_fused"
EXPERTS = "vcc.engine.ops.triton.wrapped_experts"
SCALED = "vcc.engine.ops.triton.wrapped_scaled"
SCALED_EXPERTS = "vcc.engine.ops.triton.wrapped_scaled_experts"
LORA = "vcc.engine.ops.triton.wrapped_lora"
FLOATS = ("float32", "bfloat16", "float16")
ONE_PROGRAM = (Limit("width", most=1 << 20),)
"""A norm's program holds its row: Triton's tensors have at most 2^20 elements."""

NORMS = ("rms_norm", "fused_add_rms_norm")
GATES = ("silu_and_mul", "gelu_and_mul")
QUANTS = ("quant", "quant_dynamic")


def _row(op: str, module: str = WRAPPED, limits: tuple[Limit, ...] = ()) -> Row:
    return Row(op, f"{module}:{op}", dtypes=FLOATS, strides=Strides.ANY, limits=limits)


ROWS = table(
    *(_row(op, limits=ONE_PROGRAM) for op in NORMS),
    *(_row(op) for op in (*GATES, "rotary_embedding")),
    *(_row(f"{op}_{form}", FUSED, ONE_PROGRAM) for op in NORMS for form in QUANTS),
    *(_row(f"{op}_{form}", FUSED) for op in GATES for form in QUANTS),
    *(_row(op, FUSED) for op in ("qk_norm_rope", "rms_norm_linear")),
    _row("scaled_linear", SCALED),
    _row("scaled_experts", SCALED_EXPERTS),
    *(_row(op, EXPERTS) for op in ("topk_softmax", "topk_sigmoid", "moe_experts")),
    *(_row(op, LORA) for op in ("lora_shrink", "lora_expand")),
)
"""Operator -> function that launches our kernel; each lays its arguments out by itself."""
