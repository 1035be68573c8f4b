"""Our own Triton kernels, launched inside pieces through `engine.ops.triton.wrapped`.

A build compiles each for its target; at run time they are cubins, and Triton is not there.
"""

from __future__ import annotations

from vcc.engine.ops.surfaces.row import Limit, Row, Strides, table

WRAPPED = "vcc.engine.ops.triton.wrapped"
FLOATS = ("float32", "bfloat16", "float16")
ONE_PROGRAM = (Limit("width", most=1 << 20),)
"""A norm's program holds its row: Triton's tensors have at most 2^20 elements."""

ROWS = table(
    Row("rms_norm", f"{WRAPPED}:rms_norm", dtypes=FLOATS, strides=Strides.ANY, limits=ONE_PROGRAM),
    Row(
        "fused_add_rms_norm",
        f"{WRAPPED}:fused_add_rms_norm",
        dtypes=FLOATS,
        strides=Strides.ANY,
        limits=ONE_PROGRAM,
    ),
    Row("silu_and_mul", f"{WRAPPED}:silu_and_mul", dtypes=FLOATS, strides=Strides.ANY),
    Row("gelu_and_mul", f"{WRAPPED}:gelu_and_mul", dtypes=FLOATS, strides=Strides.ANY),
    Row("rotary_embedding", f"{WRAPPED}:rotary_embedding", dtypes=FLOATS, strides=Strides.ANY),
)
"""Operator -> function that launches our kernel; each lays its arguments out by itself."""
