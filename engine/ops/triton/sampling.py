"""The launches of sampling, which is the tail of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.cache.errors import CompileError
from vcc.engine.graphs.table.types import READ, WRITE
from vcc.engine.ops.triton.choose import sample_choose
from vcc.engine.ops.triton.sample import sample_gather, sample_levels, sample_scan
from vcc.engine.ops.triton.sizes import power_of_two
from vcc.engine.ops.triton.specs import (
    POINTER_TYPES,
    Facts,
    KernelSpec,
    Launches,
    OpLaunch,
    Workspace,
)

CHUNK = 1024
"""Tokens that a program looks at."""

LEVELS = 64
ROOM = 4096
"""Tokens of a row's short list."""

TILE = 2048
"""Tokens that the choice looks at at a time."""

MOST_TOKENS = 1 << 18
"""Largest vocabulary: the sum of its weights must stay below 2^58."""

SHIFTS: Mapping[str, int] = {"float32": 0, "float16": 13, "bfloat16": 16}
"""Low bits that are the same in every value of an element type, seen as fp32."""

TYPES: Mapping[str, str] = {
    "peaks": "*fp32",
    "places": "*i32",
    "weights": "*i64",
    "counts": "*i32",
    "kept": "*fp32",
    "kept_ids": "*i32",
    "kept_count": "*i32",
    "temperature": "*fp32",
    "top_p": "*fp32",
    "top_k": "*i32",
    "seed": "*i64",
    "request": "*i32",
    "step": "*i32",
    "token": "*i32",
}
"""Pointers besides `logits`."""

STAGES: tuple[tuple[Any, frozenset[str], int], ...] = (
    (sample_scan, frozenset({"peaks", "places"}), 4),
    (sample_levels, frozenset({"weights", "counts"}), 4),
    (sample_gather, frozenset({"kept", "kept_ids", "kept_count"}), 4),
    (sample_choose, frozenset({"token"}), 8),
)
"""Kernel, what it writes, warps; in order. The last has one program a row."""


def sample_launches(facts: Facts) -> Launches:
    """Logits [B, vocab] to `token` [B]; arguments are the step's own tensors by name.

    Raises:
        CompileError: the vocabulary is empty or larger than 262,144.
    """
    if not 0 < facts.vocab <= MOST_TOKENS:
        raise CompileError(
            f"cannot sample from {facts.vocab} tokens", f"1 to {MOST_TOKENS} are supported"
        )
    chunks = -(-facts.vocab // CHUNK)
    constants = {
        "VOCAB": facts.vocab,
        "CHUNK": CHUNK,
        "CHUNKS": chunks,
        "CHUNK_LANES": power_of_two(chunks),
        "LEVELS": LEVELS,
        "ROOM": ROOM,
        "SHIFT": SHIFTS[facts.dtype],
        "TILE": TILE,
    }
    return Launches(
        tuple(_launch(*stage, constants, facts.dtype) for stage in STAGES),
        (
            Workspace("peaks", "float32", ("B", chunks)),
            Workspace("places", "int32", ("B", chunks)),
            Workspace("weights", "int64", ("B", chunks)),
            Workspace("counts", "int32", ("B", chunks, LEVELS)),
            Workspace("kept", "float32", ("B", ROOM)),
            Workspace("kept_ids", "int32", ("B", ROOM)),
            Workspace("kept_count", "int32", ("B",)),
        ),
    )


def _launch(
    function: Any, written: frozenset[str], warps: int, constants: Mapping[str, int], dtype: str
) -> OpLaunch:
    types = {"logits": POINTER_TYPES[dtype], **TYPES}
    names = tuple(name for name in function.arg_names if name in types)
    spec = KernelSpec(
        function,
        tuple((name, types[name]) for name in names),
        {name: constants[name] for name in function.arg_names if name in constants},
        frozenset(names),
        num_warps=warps,
    )
    grid = ("B", 1, 1) if function is sample_choose else (constants["CHUNKS"], "B", 1)
    access = {name: WRITE if name in written else READ for name in names}
    return OpLaunch(spec, grid, {name: name for name in names}, access)
