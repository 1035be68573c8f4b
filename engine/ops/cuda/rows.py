"""How many threads a row gets: the same rules as `csrc/ops/cuda/shape.h`, which a test compares."""

from __future__ import annotations

from dataclasses import dataclass

from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.planner.arithmetic import ceildiv, times
from vcc.engine.ops.cuda.call import WARP, chunks_of, warps

MOST_WIDTH = 16384
"""Values of a row that stay in registers."""

NARROW = 8192
"""Rows of more values have kernels of their own."""

KEPT = 4
"""Chunks of a row that a thread keeps at most (VCC_EACH_ROW)."""

KEPT_OF_WIDE_GATES = 8
"""The same of a gate's results, where its rows are wide (VCC_EACH_GATED_ROW)."""

SMALL_BLOCK = 256
TOGETHER = 2
"""Chunks of gate and of up that a thread has under way (kTogether)."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """A launch over whole rows.

    Attributes:
        wide: whether it is the kernel for wide rows.
        row_threads: threads of a row.
        threads: of a block.
    """

    wide: bool
    row_threads: int
    threads: int

    def blocks(self, rows: Expr) -> Expr:
        """Size of the grid."""
        return ceildiv(rows, self.threads // self.row_threads)


def row_shape(width: int, dtype: str, *, gated: bool = False) -> RowShape:
    """The launch for rows of `width` values, 16384 at most; `gated`: of a gate's results."""
    chunks, wide = chunks_of(width, dtype), width > NARROW
    if chunks <= WARP * KEPT:
        return RowShape(wide, min(WARP, 1 << max(chunks - 1, 0).bit_length()), SMALL_BLOCK)
    kept = KEPT_OF_WIDE_GATES if gated and wide else KEPT
    threads = warps(-(-chunks // kept))
    return RowShape(wide, threads, threads)


@dataclass(frozen=True, slots=True)
class PartShape:
    """A launch over parts of rows: `row_blocks` blocks a row."""

    row_blocks: int
    threads: int

    def blocks(self, rows: Expr) -> Expr:
        """Size of the grid."""
        return times(self.row_blocks, rows)


def part_shape(width: int, dtype: str) -> PartShape:
    """The launch for rows of any width."""
    chunks = max(1, chunks_of(width, dtype))
    row_blocks = -(-chunks // (TOGETHER * SMALL_BLOCK))
    return PartShape(row_blocks, warps(-(-chunks // (TOGETHER * row_blocks))))
