"""Launches of the write into the paged cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.engine.ops.cuda.call import (
    POINTERS,
    CudaCall,
    Parameter,
    Tensor,
    check_alike,
    chunks_of,
    refused,
    row_stride,
    short_type,
    warps,
)

MOST_THREADS = 512


def kv_call(op: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> CudaCall:
    """`kv_write`.

    Raises:
        CompileError: a layout or type that the kernel does not take.
    """
    k, cache = tensors["k"], tensors["kv_cache"]
    check_alike(op, tensors, "k", "v", "kv_cache")
    check_cache(op, tensors)
    own = POINTERS.get(k.dtype, "")
    return CudaCall(
        op,
        f"vcc_{op}_{short_type(op, k, 'k')}",
        k.shape[0],
        min(MOST_THREADS, warps(chunks_of(k.width, k.dtype))),
        (
            Parameter("k", own, "k"),
            Parameter("v", own, "v"),
            Parameter("kv_cache", own, "kv_cache", True),
            Parameter("slot_mapping", "*i32", "slot_mapping"),
            Parameter("width", "i32", k.width),
            Parameter("block_size", "i32", int(cache.shape[2])),
            Parameter("k_stride", "i64", row_stride(op, k, "k")),
            Parameter("v_stride", "i64", row_stride(op, tensors["v"], "v")),
            *cache_parameters(cache),
        ),
    )


def check_cache(op: str, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a cache whose heads do not lie one after another, or that does not fit k and v.

    Raises:
        CompileError: either.
    """
    cache, slots = tensors["kv_cache"], tensors["slot_mapping"]
    if len(cache.shape) != 5:
        raise refused(op, f"kv_cache has {len(cache.shape)} dimensions, not 5")
    heads, head_dim = int(cache.shape[3]), int(cache.shape[4])
    if cache.stride[4] != 1 or (heads > 1 and cache.stride[3] != head_dim):
        raise refused(op, "the heads of a slot of kv_cache do not lie one after another")
    for name in ("k", "v"):
        if tensors[name].width != heads * head_dim:
            raise refused(
                op, f"{name} has {tensors[name].width} columns, a slot {heads * head_dim}"
            )
    if slots.dtype != "int32" or slots.stride[0] != 1:
        raise refused(op, f"slot_mapping is {slots.dtype} with stride {slots.stride[0]}")


def cache_parameters(cache: Tensor) -> tuple[Parameter, ...]:
    """Where the slots of a cache lie: values between its halves, blocks and slots."""
    names = ("plane", "block_stride", "slot_stride")
    return tuple(
        Parameter(name, "i64", stride) for name, stride in zip(names, cache.stride[:3], strict=True)
    )
