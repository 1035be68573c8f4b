"""The launches of each operator that is a node of its own: what the planner asks for.

Operators inside pieces (norms, activations, rotary embedding) are not here: their layers trace
them into the piece (`engine/ops/triton/wrapped.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.table.types import READ, WRITE, When
from vcc.engine.ops.triton.advance import advance
from vcc.engine.ops.triton.attention_configs import decode_config, prefill_config
from vcc.engine.ops.triton.decode_attention import decode_attention, reduce_attention
from vcc.engine.ops.triton.gemm import GemmVariant, gemm_scratch, gemm_variants
from vcc.engine.ops.triton.kv import kv_write
from vcc.engine.ops.triton.kv_sizes import aligned_plane, plane
from vcc.engine.ops.triton.prefill_attention import prefill_attention
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
            kv_cache` (kv_write) or `q, kv_cache, out` (paged_attention).
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
    names = ("k", "v", "kv_cache", "slot_mapping")
    parameters = tuple((name, element) for name in names[:3])
    spec = KernelSpec(
        kv_write,
        (*parameters, ("slot_mapping", "*i32"), ("plane", "i64")),
        {
            "WIDTH": key.width,
            "LANES": power_of_two(key.width),
            "K_STRIDE": key.row_stride,
            "V_STRIDE": value.row_stride,
        },
        frozenset((*names, *aligned_plane(key.width, facts))),
        num_warps=2,
    )
    arguments = {name: name for name in names} | {"plane": plane(key.width, facts)}
    access = {"k": READ, "v": READ, "kv_cache": WRITE, "slot_mapping": READ}
    return Launches((OpLaunch(spec, ("T", 1, 1), arguments, access),))


def _paged_attention(literals: Mapping[str, Any], facts: Facts) -> Launches:
    """Decode steps split the keys and reduce; every other step runs tiles."""
    shape = _Shape(literals, facts)
    config = decode_config(facts.dtype, shape.dims, facts.profile)
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
    config = prefill_config(facts.dtype, shape.dims, facts.profile)
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


SPLIT_POINTERS = ("q", "kv_cache", "block_table", "seq_lens", "query_start")
INDICES = ("block_table", "seq_lens", "query_start")
WRITTEN: Mapping[Any, frozenset[str]] = {
    decode_attention: frozenset({"out", "partial", "peaks", "sums"}),
    reduce_attention: frozenset({"out"}),
    prefill_attention: frozenset({"out"}),
}
"""Pointers that a kernel writes; it reads the others."""


class _Shape:
    """The sizes of one call of paged attention, checked."""

    __slots__ = ("aligned", "constants", "dims", "dtype", "group", "kv_heads", "numbers")

    def __init__(self, literals: Mapping[str, Any], facts: Facts) -> None:
        q, cache, out = (literals[name] for name in ("q", "kv_cache", "out"))
        self.kv_heads, head_dim = int(cache.shape[-2]), int(cache.shape[-1])
        if head_dim > 256 or head_dim % 8 or q.width % (self.kv_heads * head_dim):
            raise CompileError(
                f"paged attention of {q.width} values in heads of {head_dim} is not supported",
                "heads are multiples of 8 up to 256 values, query heads a multiple of KV heads",
            )
        self.group = q.width // (self.kv_heads * head_dim)
        self.dims, self.dtype = max(16, power_of_two(head_dim)), facts.dtype
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
        }

    def launch(
        self,
        function: Any,
        pointers: tuple[str, ...],
        numbers: Mapping[str, str],
        grid: tuple[Expr, Expr, Expr],
        when: When,
        constants: Mapping[str, int],
        options: tuple[int, int],
    ) -> OpLaunch:
        """A launch with the constants that its function names."""
        every = {**self.constants, **constants}
        spec = KernelSpec(
            function,
            (*((name, self._type(name)) for name in pointers), *numbers.items()),
            {name: every[name] for name in function.arg_names if name in every},
            frozenset((*pointers, *(name for name in self.aligned if name in numbers))),
            *options,
        )
        written = WRITTEN[function]
        access = {name: WRITE if name in written else READ for name in pointers}
        arguments = {name: name for name in pointers}
        arguments |= {name: self.numbers[name] for name in numbers}
        return OpLaunch(spec, grid, arguments, access, when)

    def _type(self, name: str) -> str:
        indices = name in INDICES
        scratch = name in ("partial", "peaks", "sums")
        return POINTER_TYPES["int32" if indices else "float32" if scratch else self.dtype]


BUILDERS: Mapping[str, Callable[[Mapping[str, Any], Facts], Launches]] = {
    "kv_write": _kv_write,
    "paged_attention": _paged_attention,
    "rope_kv_write": rope_kv_write,
}
"""Operator name -> its launches."""
