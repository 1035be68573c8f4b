"""The probe's own kernels as entries of the table: splitting ops and gemm variants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kernels
from cubins import Cubin, compile_kernel
from table import GemmVariant, Launch, SplittingOp
from triton.backends.compiler import GPUTarget

TRITON = {"bfloat16": "bf16", "float32": "fp32"}

TILES = ((16, 64, 16, 64, 4), (64, 64, 64, 64, 4), (0, 64, 128, 64, 4))
"""(most rows, tile of n, tile of rows, tile of k, warps): not tuned."""

KEYS = 32
"""Keys that attention reads at a time."""


def kv_write_op(
    spec: Any, limits: Mapping[str, int], dtype: str, target: GPUTarget
) -> tuple[Cubin, SplittingOp]:
    """`vcc::kv_write(k, v, kv_cache, slot_mapping)`: one program a row."""
    element, width = TRITON[dtype], spec.kv_width
    names = ["k", "v", "kv_cache", "slot_mapping"]
    cubin = compile_kernel(
        kernels.kv_write,
        {**dict.fromkeys(names[:3], f"*{element}"), "slot_mapping": "*i32", "plane": "i64"},
        {"WIDTH": width, "LANES": _power_of_two(width)},
        (*names, "plane"),
        target,
        num_warps=1,
    )
    arguments = {name: name for name in names} | {"plane": _plane(limits, width)}
    return cubin, SplittingOp(names, Launch(cubin.kernel.cubin, ("T", 1, 1), arguments))


def paged_attention_op(
    spec: Any, limits: Mapping[str, int], dtype: str, target: GPUTarget
) -> tuple[Cubin, SplittingOp]:
    """`vcc::paged_attention(...)` with one scale, window and cap: a program a row and KV head."""
    element, group = TRITON[dtype], spec.heads // spec.kv_heads
    names = ["q", "kv_cache", "block_table", "seq_lens", "query_start", "out"]
    kinds = {name: f"*{element}" if name in ("q", "kv_cache", "out") else "*i32" for name in names}
    constants = {
        "SCALE": spec.scale,
        "WINDOW": spec.windows[0],
        "CAP": spec.attention_cap,
        "GROUP": group,
        "GROUP_LANES": _power_of_two(group),
        "KV_HEADS": spec.kv_heads,
        "HEAD_DIM": spec.head_dim,
        "BLOCK_SIZE": limits["block_size"],
        "TABLE_WIDTH": limits["table_width"],
        "KEYS": KEYS,
    }
    cubin = compile_kernel(
        kernels.paged_attention,
        {**kinds, "plane": "i64", "seqs": "i32"},
        constants,
        (*names, "plane"),
        target,
        num_warps=4,
    )
    arguments: dict[str, Any] = {name: name for name in names}
    arguments |= {"plane": _plane(limits, spec.kv_width), "seqs": "B"}
    launch = Launch(cubin.kernel.cubin, ("T", spec.kv_heads, 1), arguments)
    return cubin, SplittingOp(names, launch)


def gemm_variants(dtype: str, target: GPUTarget) -> list[tuple[Cubin, GemmVariant]]:
    """Kernels for gemm nodes, by number of rows, with and without an addend."""
    return [_variant(dtype, target, tiles, has_c) for has_c in (False, True) for tiles in TILES]


def _variant(
    dtype: str, target: GPUTarget, tiles: tuple[int, ...], has_c: bool
) -> tuple[Cubin, GemmVariant]:
    most, tile_n, tile_rows, tile_k, warps = tiles
    cubin = compile_kernel(
        kernels.linear,
        {**dict.fromkeys("awcd", f"*{TRITON[dtype]}"), **dict.fromkeys(("rows", "n", "k"), "i32")},
        {"HAS_C": has_c, "TILE_N": tile_n, "TILE_ROWS": tile_rows, "TILE_K": tile_k},
        ("a", "w", "c", "d", "n", "k"),
        target,
        num_warps=warps,
        num_stages=3,
    )
    return cubin, GemmVariant(most, has_c, tile_n, tile_rows, tile_k, cubin.kernel.cubin)


def _plane(limits: Mapping[str, int], width: int) -> Any:
    """Elements between the K and the V half of a cache of K blocks."""
    return ["*", "K", limits["block_size"] * width]


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()
