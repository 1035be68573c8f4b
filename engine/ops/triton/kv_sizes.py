"""What launches say of a KV cache: its element type and scales, and where its halves lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr
from vcc.engine.ops.triton.specs import Facts

FP8 = "float8_e4m3fn"
FP8_ARCH = 89
"""The first architecture whose Triton code converts to and from fp8."""

SCALE = "kv_scale"
"""The operators' argument of an fp8 cache's scales."""


def cache_dtype(literals: Mapping[str, Any], facts: Facts) -> str:
    """The element type of `kv_cache`.

    Raises:
        CompileError: fp8, for a device that does not convert it.
    """
    cache = literals.get("kv_cache")
    found = facts.dtype if cache is None else str(cache.dtype or facts.dtype)
    if found == FP8 and facts.profile.arch < FP8_ARCH:
        raise CompileError(
            f"an fp8 KV cache is not for {facts.profile.target}",
            f"it has no float8_e4m3fn: sm_{FP8_ARCH} and newer have",
            "leave --kv-cache-dtype out for this target",
        )
    return found


def scale_pointers(literals: Mapping[str, Any]) -> tuple[str, ...]:
    """The pointer to scales that kernels get, where a call gives them.

    Raises:
        CompileError: they are not two numbers side by side.
    """
    scale = literals.get(SCALE)
    if scale is None:
        return ()
    if tuple(scale.shape) != (2,) or tuple(scale.stride) not in ((), (1,)):
        raise CompileError(
            f"{SCALE} is not one number for keys and one for values, side by side",
            f"its sizes are {list(scale.shape)}, its strides {list(scale.stride)}",
            "give a dense tensor of two float32 numbers",
        )
    return (SCALE,)


def without_scale(literals: Mapping[str, Any]) -> dict[str, Any]:
    """The constant that stands for the pointer elsewhere."""
    return {} if literals.get(SCALE) is not None else {SCALE: None}


def plane(width: int, facts: Facts) -> Expr:
    """Elements between the K and the V half of a cache of K blocks, with rows of `width`."""
    return ["*", "K", facts.block_size * width]


def aligned_plane(width: int, facts: Facts) -> tuple[str, ...]:
    """`plane` where it is a multiple of 16 for every number of blocks."""
    return ("plane",) if facts.block_size * width % 16 == 0 else ()
