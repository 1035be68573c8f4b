"""Which families of products the GEMM store can hold. Light: a boot imports this."""

from __future__ import annotations

from collections.abc import Mapping

from vcc.engine.graphs.table.layout import FP8, SCALE_BLOCK, STORED_SCALE_COLUMNS

UNSTORABLE: Mapping[str, str] = {
    "mixed": "cuBLASLt has no product of one scale for all activations and one for each row of the"
    " weight, and that of activations stands once for each of 8192 rows only",
}
"""Scales of products that the store does not hold, and why; the artifact's kernels compute them."""

FP8_MULTIPLE = 16
"""Of n and k of a scaled product of cuBLASLt."""

BLOCKS = "blocks"
BLOCK_ROWS = 4
"""Of m where scales are of blocks."""


def recorded_rows(rows: int, scales: str) -> int:
    """The number of rows that is recorded for a step of so many."""
    return -(-rows // BLOCK_ROWS) * BLOCK_ROWS if scales == BLOCKS else rows


def scale_columns(k: int) -> tuple[int, int]:
    """Columns of a weight's scales of blocks: in a table, and where a stored product reads them."""
    across = -(-k // SCALE_BLOCK)
    return across, -(-across // STORED_SCALE_COLUMNS) * STORED_SCALE_COLUMNS


def why_not(n: int, k: int, dtype: str, has_c: bool, out: str, scales: str) -> str:
    """Why the store cannot hold a product of this family; empty where it can."""
    if scales in UNSTORABLE:
        return UNSTORABLE[scales]
    if dtype != FP8:
        return ""
    if n % FP8_MULTIPLE or k % FP8_MULTIPLE:
        return f"cuBLASLt multiplies fp8 where n and k are multiples of {FP8_MULTIPLE}"
    if scales == BLOCKS and k % SCALE_BLOCK:
        return f"activations have scales of whole blocks, where k is a multiple of {SCALE_BLOCK}"
    if has_c and out == "float32":
        return "cuBLASLt adds no bias of float32 to a product of fp8"
    return ""
