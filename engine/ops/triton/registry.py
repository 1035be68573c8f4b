"""The launches of each operator that is a node of its own: what the planner asks for.

Operators inside pieces (norms, activations, rotary embedding) are not here: their layers trace
them into the piece (`engine/ops/triton/wrapped.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vcc.cache.errors import CompileError
from vcc.engine.graphs.table.types import READ, WRITE
from vcc.engine.ops.triton.advance import advance
from vcc.engine.ops.triton.attention_launch import paged_attention, paged_attention_quant
from vcc.engine.ops.triton.gemm import GemmVariant, gemm_scratch, gemm_variants
from vcc.engine.ops.triton.kv import kv_write
from vcc.engine.ops.triton.kv_sizes import (
    aligned_plane,
    cache_dtype,
    plane,
    scale_pointers,
    without_scale,
)
from vcc.engine.ops.triton.rope_launch import rope_kv_write
from vcc.engine.ops.triton.sampling import sample_launches
from vcc.engine.ops.triton.sizes import power_of_two
from vcc.engine.ops.triton.specs import (
    POINTER_TYPES,
    Facts,
    KernelSpec,
    Launches,
    OpLaunch,
    TensorLayout,
    Workspace,
)

__all__ = [
    "Facts",
    "GemmVariant",
    "KernelSpec",
    "Launches",
    "OpLaunch",
    "TensorLayout",
    "Workspace",
    "advance_launches",
    "gemm_scratch",
    "gemm_variants",
    "launches",
    "sample_launches",
]


def launches(op: str, literals: Mapping[str, Any], facts: Facts) -> Launches:
    """The launches of one call of an operator.

    Args:
        op: name inside `torch.ops.vcc`.
        literals: its numbers by argument name, and a TensorLayout for each tensor in `k, v,
            kv_cache` (kv_write) or `q, kv_cache, out` (attention), and for `kv_scale` if given.
        facts: model and device.

    Raises:
        CompileError: no such operator, or sizes that its kernels do not take.
    """
    found = BUILDERS.get(op)
    if found is None:
        raise CompileError(
            f"operator {op} has no kernel of its own on CUDA", f"these have: {', '.join(BUILDERS)}"
        )
    return found(literals, facts)


def advance_launches(facts: Facts) -> Launches:
    """The head of a device-side decode loop; arguments are the step's own tensors by name."""
    names = (
        *("token", "active", "block_table", "input_ids"),
        *("positions", "slot_mapping", "seq_lens", "step"),
    )
    spec = KernelSpec(
        advance,
        (*((name, "*i32") for name in names), ("seqs", "i32")),
        {"BLOCK_SIZE": facts.block_size, "TABLE_WIDTH": facts.table_width, "LANES": 64},
        frozenset(names),
        num_warps=2,
    )
    access = dict.fromkeys(names[:3], READ) | dict.fromkeys(names[3:6], WRITE)
    access |= {"positions": READ | WRITE, "seq_lens": WRITE, "step": READ | WRITE}
    arguments = {name: name for name in names} | {"seqs": "B"}
    return Launches((OpLaunch(spec, (["ceildiv", "B", 64], 1, 1), arguments, access),))


def _kv_write(literals: Mapping[str, Any], facts: Facts) -> Launches:
    key, value = literals["k"], literals["v"]
    element = POINTER_TYPES[facts.dtype]
    scale = scale_pointers(literals)
    names = ("k", "v", "kv_cache", "slot_mapping", *scale)
    types = {"k": element, "v": element, "kv_cache": POINTER_TYPES[cache_dtype(literals, facts)]}
    types |= {"slot_mapping": "*i32", **dict.fromkeys(scale, "*fp32")}
    spec = KernelSpec(
        kv_write,
        (*types.items(), ("plane", "i64")),
        {
            "WIDTH": key.width,
            "LANES": power_of_two(key.width),
            "K_STRIDE": key.row_stride,
            "V_STRIDE": value.row_stride,
            **without_scale(literals),
        },
        frozenset((*names, *aligned_plane(key.width, facts))),
        num_warps=2,
    )
    arguments = {name: name for name in names} | {"plane": plane(key.width, facts)}
    access = dict.fromkeys(names, READ) | {"kv_cache": WRITE}
    return Launches((OpLaunch(spec, ("T", 1, 1), arguments, access),))


BUILDERS: Mapping[str, Callable[[Mapping[str, Any], Facts], Launches]] = {
    "kv_write": _kv_write,
    "paged_attention": paged_attention,
    "paged_attention_quant": paged_attention_quant,
    "rope_kv_write": rope_kv_write,
}
"""Operator name -> its launches."""
