"""Launches of rotary embedding, alone, after the heads' norm, and into the paged cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.planner.arithmetic import times
from vcc.engine.ops.cuda.call import (
    CHUNK,
    ITEM,
    POINTERS,
    WARP,
    CudaCall,
    Parameter,
    Result,
    Tensor,
    check_alike,
    check_dense,
    refused,
    row_stride,
    short_type,
    warps,
)
from vcc.engine.ops.cuda.kv import (
    cache_kind,
    cache_parameters,
    cached_symbol,
    check_cache,
    scale_parameter,
)
from vcc.engine.ops.cuda.rows import if_few, most_few

HEADS_AT_ONCE, MOST_THREADS = 2, 256


def rope_call(op: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> CudaCall:
    """`rotary_embedding`, `qk_norm_rope`, `rope_kv_write`.

    Raises:
        CompileError: a layout, type or head that the kernels do not take.
    """
    q, k, head_dim = tensors["q"], tensors["k"], int(numbers["head_dim"])
    half = tensors["cos"].width
    cached, normed = "kv_cache" in tensors, "q_weight" in tensors
    _check(op, tensors, head_dim, half)
    lanes = lanes_of(op, head_dim, half, q.dtype)
    heads, kv_heads = q.width // head_dim, k.width // head_dim
    total = heads + (2 if cached else 1) * kv_heads
    threads = threads_of(lanes, total)
    shift = shift_of(lanes * total, threads)
    sizes: dict[str, Expr] = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    few = most_few(1 << shift)
    sizes |= {"half": half, "lanes": lanes, "shift": if_few(q.rows, few, shift, 0)}
    if cached:
        sizes["block_size"] = int(tensors["kv_cache"].shape[2])
    strided = ("q", "k", *(("v",) if cached else ()), "cos", "sin")
    factors = ("eps", "weight_offset") if normed else ()
    pointers, results = _pointers(tensors)
    return CudaCall(
        op,
        cached_symbol(op, tensors, "q") if cached else f"vcc_{op}_{short_type(op, q, 'q')}",
        times(if_few(q.rows, few, 1 << shift, 1), q.rows),
        threads,
        (
            *pointers,
            *(Parameter(name, "i32", size) for name, size in sizes.items()),
            *(Parameter(f"{n}_stride", "i64", row_stride(op, tensors[n], n)) for n in strided),
            *(cache_parameters(tensors["kv_cache"]) if cached else ()),
            *(scale_parameter(tensors) if cached else ()),
            *(Parameter(name, "fp32", float(numbers[name])) for name in factors),
        ),
        results,
    )


def _pointers(
    tensors: Mapping[str, Tensor],
) -> tuple[tuple[Parameter, ...], tuple[Result, ...]]:
    q, k = tensors["q"], tensors["k"]
    own = POINTERS[q.dtype]
    read = [n for n in ("q", "k", "v", "q_weight", "k_weight", "cos", "sin") if n in tensors]
    kinds = {"cos": "*fp32", "sin": "*fp32"}
    inputs = tuple(Parameter(name, kinds.get(name, own), name) for name in read)
    if "kv_cache" not in tensors:
        results = (Result("q_out", q.dtype, q.shape), Result("k_out", k.dtype, k.shape))
        return (*inputs, *(Parameter(one.name, own, one.name, True) for one in results)), results
    cached = (
        Parameter("kv_cache", cache_kind("rope_kv_write", tensors), "kv_cache", True),
        Parameter("slot_mapping", "*i32", "slot_mapping"),
        Parameter("q_out", own, "q_out", True),
    )
    return (*inputs, *cached), ()


def lanes_of(op: str, head_dim: int, half: int, dtype: str) -> int:
    """Neighbouring threads that take a head: a power of two.

    Raises:
        CompileError: the head is too large for a warp.
    """
    values = CHUNK // ITEM[dtype]
    units = -(-half // values) + -(-(head_dim - 2 * half) // (2 * values))
    if units > WARP:
        raise refused(op, f"heads have {head_dim} values; kernels take {2 * WARP * values} at most")
    return 1 << max(units - 1, 0).bit_length()


def threads_of(lanes: int, heads: int) -> int:
    """Threads of a block, which is a token, where there are many."""
    return min(MOST_THREADS, warps(lanes * -(-heads // HEADS_AT_ONCE)))


def shift_of(units: int, threads: int) -> int:
    """Of few tokens, 2 to this power blocks take one, so that a thread has one head."""
    return (-(-units // threads) - 1).bit_length()


def _check(op: str, tensors: Mapping[str, Tensor], head_dim: int, half: int) -> None:
    q = tensors["q"]
    names = [n for n in ("k", "v", "q_weight", "k_weight", "q_out") if n in tensors]
    check_alike(op, tensors, "q", *names)
    for name in ("q_weight", "k_weight", "q_out"):
        if name in tensors:
            check_dense(op, tensors[name], name)
    for name in ("cos", "sin"):
        if tensors[name].dtype != "float32" or tensors[name].width != half:
            raise refused(op, f"{name} is {tensors[name].dtype} of {tensors[name].width} columns")
    for name in ("q", "k", *(("v",) if "v" in tensors else ())):
        if len(tensors[name].shape) != 2 or head_dim < 1 or tensors[name].width % head_dim:
            raise refused(op, f"{name} is {list(tensors[name].shape)}, not heads of {head_dim}")
    if 2 * half > head_dim or q.dtype not in ITEM:
        raise refused(op, f"{2 * half} of {head_dim} values of {q.dtype} are turned")
    if "kv_cache" in tensors:
        check_cache(op, tensors)
