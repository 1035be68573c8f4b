"""Our own compiled kernels: `libvcc_ops` for the CPU, cubins of `csrc/kernels` for CUDA.

Arguments are those of the operator itself, so rows have no map. An operator without a CPU row is
still callable: `register.py` gives it the plain-torch implementation.
"""

from __future__ import annotations

from collections.abc import Mapping

from vcc.engine.ops.surfaces.row import Limit, Row, Sizes, no_workspace, table

FLOATS = ("float32", "bfloat16")
NORMS, FORMS = ("rms_norm", "fused_add_rms_norm"), ("", "_quant", "_quant_dynamic")
SPLIT_KEYS = 512
"""Keys after which the CPU's decode attention begins another partial result (kSplitKeys)."""


LANES = 16
"""fp32 values of the widest registers, to which a head is padded."""


def attention_scratch(sizes: Sizes) -> int:
    """Most bytes of the partial results of split sequences: fp32, each with maximum and sum.

    Args:
        sizes: `tokens`, `heads`, `head_dim`, and `keys` of the longest sequence.
    """
    parts = -(-sizes["keys"] // SPLIT_KEYS)
    if parts == 1:
        return 0
    padded = -(-sizes["head_dim"] // LANES) * LANES
    return 4 * sizes["tokens"] * sizes["heads"] * parts * (padded + 2)


WITH_SCRATCH = ("paged_attention", "paged_attention_quant")

CPU = table(
    *(
        Row(
            op,
            f"vcc::{op}",
            dtypes=FLOATS,
            workspace=attention_scratch if op in WITH_SCRATCH else no_workspace,
        )
        for op in (
            *("rms_norm", "fused_add_rms_norm", "silu_and_mul", "gelu_and_mul"),
            *("rotary_embedding", "qk_norm_rope", "kv_write", "rope_kv_write"),
            *("paged_attention", "paged_attention_quant", "topk_softmax", "moe_experts"),
            *("lora_shrink", "lora_expand"),
            *("scaled_linear", "scaled_experts", "rms_norm_quant", "rms_norm_quant_dynamic"),
            *("fused_add_rms_norm_quant", "fused_add_rms_norm_quant_dynamic"),
            *("silu_and_mul_quant", "silu_and_mul_quant_dynamic"),
            *("gelu_and_mul_quant", "gelu_and_mul_quant_dynamic"),
        )
    )
)
"""Operator -> kernel of `libvcc_ops`; `csrc/ops/library.cpp` registers the same."""

ALL_FLOATS = ("float32", "bfloat16", "float16")
KEPT_ROW = (Limit("width", most=16384),)
"""Values of a row that stay in registers between two passes."""

HEAD = (Limit("head_dim", most=256),)
"""A warp takes a head: 32 pairs of chunks, 256 values in fp32."""


def _cuda(op: str, limits: tuple[Limit, ...] = ()) -> Row:
    return Row(op, f"vcc::{op}", dtypes=ALL_FLOATS, limits=limits)


CUDA: Mapping[str, Row] = table(
    *(_cuda(f"{norm}{form}", KEPT_ROW) for norm in NORMS for form in FORMS),
    *(_cuda(f"{gate}_and_mul{form}") for gate in ("silu", "gelu") for form in FORMS),
    *(_cuda(op, HEAD) for op in ("rotary_embedding", "qk_norm_rope", "rope_kv_write")),
    *(_cuda(op) for op in ("kv_write", "topk_softmax", "topk_sigmoid")),
)
"""Operator -> kernel of `csrc/kernels`; `engine/ops/cuda/table.py` has the launch of each."""
