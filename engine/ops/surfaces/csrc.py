"""Our own compiled kernels: `libvcc_ops` for the CPU, cubins of `csrc/kernels` for CUDA.

Arguments are those of the operator itself, so rows have no map. An operator without a CPU row is
still callable: `register.py` gives it the plain-torch implementation.
"""

from __future__ import annotations

from collections.abc import Mapping

from vcc.engine.ops.surfaces.row import Row, Sizes, table

FLOATS = ("float32", "bfloat16")
SPLIT_KEYS = 512
"""Keys after which the CPU's decode attention begins another partial result (kSplitKeys)."""


def attention_scratch(sizes: Sizes) -> int:
    """Bytes of the partial results of split sequences: fp32, each with its maximum and its sum."""
    parts = -(-sizes["keys"] // SPLIT_KEYS)
    if parts == 1:
        return 0
    return 4 * sizes["tokens"] * sizes["heads"] * parts * (sizes["head_dim"] + 2)


CPU = table(
    Row("rms_norm", "vcc::rms_norm", dtypes=FLOATS),
    Row("fused_add_rms_norm", "vcc::fused_add_rms_norm", dtypes=FLOATS),
    Row("silu_and_mul", "vcc::silu_and_mul", dtypes=FLOATS),
    Row("rotary_embedding", "vcc::rotary_embedding", dtypes=FLOATS),
    Row("kv_write", "vcc::kv_write", dtypes=FLOATS),
    Row("paged_attention", "vcc::paged_attention", dtypes=FLOATS, workspace=attention_scratch),
    Row("topk_softmax", "vcc::topk_softmax", dtypes=FLOATS),
    Row("moe_experts", "vcc::moe_experts", dtypes=FLOATS),
)
"""Operator -> kernel of `libvcc_ops`; `csrc/ops/library.cpp` registers the same."""

CUDA: Mapping[str, Row] = table()
"""Operator -> kernel of `csrc/kernels`; a row comes with its kernel."""
