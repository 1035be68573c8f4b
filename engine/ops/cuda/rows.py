"""How many threads a row gets: the same rules as `csrc/ops/cuda/shape.h`, which a test compares.

A launch is one for all numbers of rows, so its block is fixed. Of few rows, as in decode steps,
more blocks take one, which parameters tell: then its latency counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.planner.arithmetic import add, ceildiv, floordiv, least, modulo, times
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

FEW_BLOCKS = 256
"""More blocks take a row as long as there are no more than so many: two of a multiprocessor."""


def most_few(blocks: int) -> int:
    """How many rows are few, where so many blocks then take one."""
    return FEW_BLOCKS // blocks


def if_few(rows: Expr, most: int, few: int, many: int) -> Expr:
    """`few`, which is not less than `many`, for at most `most` rows, and `many` for more."""
    more = least(1, floordiv(rows, most + 1))  # a table has no comparison and no subtraction
    return add(many, times(few - many, modulo(add(more, 1), 2)))


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
    """A launch over parts of rows.

    Attributes:
        few: blocks of a row, where there are few rows.
        many: the same where there are many.
        threads: of a block.
    """

    few: int
    many: int
    threads: int

    def row_blocks(self, rows: Expr) -> Expr:
        """Blocks of a row."""
        return if_few(rows, most_few(self.few), self.few, self.many)

    def blocks(self, rows: Expr) -> Expr:
        """Size of the grid."""
        return times(self.row_blocks(rows), rows)


def part_shape(width: int, dtype: str) -> PartShape:
    """The launch for rows of any width."""
    chunks = max(1, chunks_of(width, dtype))
    many = -(-chunks // (TOGETHER * SMALL_BLOCK))
    threads = warps(-(-chunks // (TOGETHER * many)))
    return PartShape(-(-chunks // threads), many, threads)
