"""The launches of paged attention: decode steps split the keys and reduce, others run tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton.language as tl

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.table.types import READ, WRITE, When
from vcc.engine.ops.triton.attention_configs import decode_config, prefill_config
from vcc.engine.ops.triton.decode_attention import decode_attention, reduce_attention
from vcc.engine.ops.triton.kv_sizes import (
    FP8,
    FP8_ARCH,
    SCALE,
    aligned_plane,
    cache_dtype,
    plane,
    scale_pointers,
    without_scale,
)
from vcc.engine.ops.triton.prefill_attention import prefill_attention
from vcc.engine.ops.triton.sizes import power_of_two
from vcc.engine.ops.triton.specs import (
    POINTER_TYPES,
    Facts,
    KernelSpec,
    Launches,
    OpLaunch,
    Workspace,
)

TYPES = {"float32": tl.float32, "bfloat16": tl.bfloat16, "float16": tl.float16}


def paged_attention(literals: Mapping[str, Any], facts: Facts) -> Launches:
    """The launches of one call.

    Args:
        literals: `scale`, `sliding_window`, `soft_cap`, and a TensorLayout for `q, kv_cache, out`.
        facts: model and device.

    Raises:
        CompileError: sizes that the kernels do not take.
    """
    return _launches(_Shape(literals, facts, facts.dtype), facts)


def paged_attention_quant(literals: Mapping[str, Any], facts: Facts) -> Launches:
    """The same with results as fp8 over `out_scale`.

    Raises:
        CompileError: also for a device without the type.
    """
    if facts.profile.arch < FP8_ARCH:
        raise CompileError(
            f"paged attention with fp8 results is not for {facts.profile.target}",
            "it has no float8_e4m3fn: sm_89 and newer have",
            "leave fuse_attention_quant out for this target",
        )
    return _launches(_Shape(literals, facts, FP8), facts)


def _launches(shape: _Shape, facts: Facts) -> Launches:
    config = decode_config(facts.dtype, shape.dims, facts.profile, fp8=shape.fp8)
    programs = config.programs(facts.profile)
    total = ["max", programs, ["*", "B", shape.kv_heads]]
    spaces = (
        Workspace("partial", "float32", (total, shape.group, shape.dims)),
        Workspace("peaks", "float32", (total, shape.group)),
        Workspace("sums", "float32", (total, shape.group)),
    )
    split = shape.launch(
        decode_attention,
        (*SPLIT_POINTERS[:4], "out", "partial", "peaks", "sums"),
        {"plane": "i64", "seqs": "i32"},
        (total, 1, 1),
        When.UNIFORM,
        {"PROGRAMS": programs, "KEYS": config.keys, "LANES": max(16, power_of_two(shape.group))},
        (config.warps, config.stages),
    )
    reduce = shape.launch(
        reduce_attention,
        ("partial", "peaks", "sums", "out"),
        {"seqs": "i32"},
        (["*", "B", shape.kv_heads * shape.group], 1, 1),
        When.UNIFORM,
        {"PROGRAMS": programs, "LANES": min(64, power_of_two(programs // shape.kv_heads))},
        (4, 1),
    )
    return Launches((split, reduce, _prefill(shape, facts)), spaces)


def _prefill(shape: _Shape, facts: Facts) -> OpLaunch:
    config = prefill_config(facts.dtype, shape.dims, facts.profile, fp8=shape.fp8)
    lanes = max(config.rows, power_of_two(shape.group))
    rows = lanes // shape.group
    tiles = ["+", ["+", ["//", "T", rows], "B"], 1]
    return shape.launch(
        prefill_attention,
        (*SPLIT_POINTERS, "out"),
        {"plane": "i64", "tokens": "i32", "seqs": "i32"},
        (["*", tiles, shape.kv_heads], 1, 1),
        When.MIXED,
        {"BLOCK_Q": rows, "LANES": lanes, "KEYS": config.keys},
        (config.warps, config.stages),
    )


LEAST_DIMS = 16
"""Values of a head as the tensor cores take them, at least."""

SPLIT_POINTERS = ("q", "kv_cache", "block_table", "seq_lens", "query_start")
INDICES = ("block_table", "seq_lens", "query_start")
SCRATCH = ("partial", "peaks", "sums")
WRITTEN: Mapping[Any, frozenset[str]] = {
    decode_attention: frozenset({"out", "partial", "peaks", "sums"}),
    reduce_attention: frozenset({"out"}),
    prefill_attention: frozenset({"out"}),
}
"""Pointers that a kernel writes; it reads the others."""


class _Shape:
    """The sizes of one call of paged attention, checked."""

    __slots__ = ("aligned", "constants", "dims", "fp8", "group", "kv_heads", "numbers", "types")

    def __init__(self, literals: Mapping[str, Any], facts: Facts, result: str) -> None:
        q, cache, out = (literals[name] for name in ("q", "kv_cache", "out"))
        self.kv_heads, head_dim = int(cache.shape[-2]), int(cache.shape[-1])
        if head_dim > 256 or head_dim % 8 or q.width % (self.kv_heads * head_dim):
            raise CompileError(
                f"paged attention of {q.width} values in heads of {head_dim} is not supported",
                "heads are multiples of 8 up to 256 values, query heads a multiple of KV heads",
            )
        self.group = q.width // (self.kv_heads * head_dim)
        self.dims = max(LEAST_DIMS, power_of_two(head_dim))
        self.types = dict.fromkeys(INDICES, "int32") | dict.fromkeys(SCRATCH, "float32")
        stored = cache_dtype(literals, facts)
        self.fp8 = stored == FP8
        self.types |= {"q": facts.dtype, "kv_cache": stored, "out": result}
        self.types |= dict.fromkeys(scale_pointers(literals), "float32")
        # Without this fact values are read two bytes at a time.
        self.aligned = aligned_plane(self.kv_heads * head_dim, facts)
        self.numbers = {
            "plane": plane(self.kv_heads * head_dim, facts), "tokens": "T", "seqs": "B"
        }  # fmt: skip
        self.constants = {
            "SCALE": float(literals["scale"]),
            "WINDOW": int(literals.get("sliding_window", 0)),
            "CAP": float(literals.get("soft_cap", 0.0)),
            "GROUP": self.group,
            "KV_HEADS": self.kv_heads,
            "HEAD_DIM": head_dim,
            "DIMS": self.dims,
            "BLOCK_SIZE": facts.block_size,
            "TABLE_WIDTH": facts.table_width,
            "Q_STRIDE": q.row_stride,
            "OUT_STRIDE": out.row_stride,
            "WIDE": None,
            **without_scale(literals),
        }
        if result == FP8:
            self.types["out_scale"], self.constants["WIDE"] = "float32", TYPES[facts.dtype]
        else:
            self.constants["out_scale"] = None

    def launch(
        self,
        function: Any,
        needed: tuple[str, ...],
        numbers: Mapping[str, str],
        grid: tuple[Expr, Expr, Expr],
        when: When,
        constants: Mapping[str, int],
        options: tuple[int, int],
    ) -> OpLaunch:
        """A launch with the constants that its function names."""
        every = {**self.constants, **constants}
        pointers = tuple(name for name in (*needed, "out_scale", SCALE) if name in self.types)
        spec = KernelSpec(
            function,
            (*((name, POINTER_TYPES[self.types[name]]) for name in pointers), *numbers.items()),
            {name: every[name] for name in function.arg_names if name in every},
            frozenset((*needed, *(name for name in self.aligned if name in numbers))),
            *options,
        )
        written = WRITTEN[function]
        access = {name: WRITE if name in written else READ for name in pointers}
        arguments = {name: name for name in pointers}
        arguments |= {name: self.numbers[name] for name in numbers}
        return OpLaunch(spec, grid, arguments, access, when)
