"""Launches of the write into the paged cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.engine.ops.cuda.call import (
    FP8,
    POINTERS,
    CudaCall,
    Parameter,
    Tensor,
    check_alike,
    check_dense,
    chunks_of,
    refused,
    row_stride,
    short_type,
    warps,
)

CHUNKS_AT_ONCE, MOST_THREADS = 2, 256


def kv_call(op: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> CudaCall:
    """`kv_write`.

    Raises:
        CompileError: a layout or type that the kernel does not take.
    """
    k, cache = tensors["k"], tensors["kv_cache"]
    check_alike(op, tensors, "k", "v")
    check_cache(op, tensors)
    own, stored = POINTERS.get(k.dtype, ""), cache_kind(op, tensors)
    return CudaCall(
        op,
        cached_symbol(op, tensors, "k"),
        k.shape[0],
        min(MOST_THREADS, warps(-(-chunks_of(k.width, k.dtype) // CHUNKS_AT_ONCE))),
        (
            Parameter("k", own, "k"),
            Parameter("v", own, "v"),
            Parameter("kv_cache", stored, "kv_cache", True),
            Parameter("slot_mapping", "*i32", "slot_mapping"),
            Parameter("width", "i32", k.width),
            Parameter("block_size", "i32", int(cache.shape[2])),
            Parameter("k_stride", "i64", row_stride(op, k, "k")),
            Parameter("v_stride", "i64", row_stride(op, tensors["v"], "v")),
            *cache_parameters(cache),
            *scale_parameter(tensors),
        ),
    )


def cache_kind(op: str, tensors: Mapping[str, Tensor]) -> str:
    """A pointer to elements of a cache: those of k, or fp8.

    Raises:
        CompileError: another type, or scales that do not go with it.
    """
    cache, scale = tensors["kv_cache"], tensors.get("kv_scale")
    if cache.dtype != FP8:
        check_alike(op, tensors, "k", "kv_cache")
        if scale is not None:
            raise refused(op, f"kv_scale goes with a cache in {FP8}, kv_cache is {cache.dtype}")
    if scale is not None:
        if scale.dtype != "float32" or scale.shape != (2,):
            why = f"kv_scale is {scale.dtype} of {list(scale.shape)}, not float32 of [2]"
            raise refused(op, why)
        check_dense(op, scale, "kv_scale")
    return POINTERS.get(cache.dtype, "")


def cached_symbol(op: str, tensors: Mapping[str, Tensor], first: str) -> str:
    """The kernel of an operator that writes the cache; those of an fp8 one have their own."""
    form = "fp8_" if tensors["kv_cache"].dtype == FP8 else ""
    return f"vcc_{op}_{form}{short_type(op, tensors[first], first)}"


def scale_parameter(tensors: Mapping[str, Tensor]) -> tuple[Parameter, ...]:
    """The scales that the kernels of an fp8 cache take; a null pointer stands for ones."""
    if tensors["kv_cache"].dtype != FP8:
        return ()
    if "kv_scale" in tensors:
        return (Parameter("kv_scale", "*fp32", "kv_scale"),)
    return (Parameter("kv_scale", "i64", 0),)


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
