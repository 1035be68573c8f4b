"""Blocks of the paged KV cache: a pool that hands them out, and one table a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int32Array: TypeAlias = npt.NDArray[np.int32]


class BlockPool:
    """Free blocks of one KV cache.

    Args:
        num_blocks: blocks in the cache, ids 0..num_blocks-1.
        block_size: tokens a block holds.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs blocks and slots: {num_blocks} x {block_size}")
        self.num_blocks, self.block_size = num_blocks, block_size
        # A stack: the block freed last is still in the CPU's cache.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._taken = np.zeros(num_blocks, dtype=np.bool_)

    @property
    def free_blocks(self) -> int:
        """Blocks that can be allocated now."""
        return len(self._free)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def allocate(self, count: int) -> tuple[int, ...] | None:
        """Take `count` blocks, all or none; None says that the pool is exhausted."""
        if count > len(self._free):
            return None
        blocks = tuple(self._free.pop() for _ in range(count))
        self._taken[list(blocks)] = True
        return blocks

    def free(self, blocks: Sequence[int]) -> None:
        """Give blocks back.

        Raises:
            ValueError: a block is not allocated (freed twice, or never taken).
        """
        for block in blocks:
            if not 0 <= block < self.num_blocks or not self._taken[block]:
                raise ValueError(f"block {block} is not allocated")
            self._taken[block] = False
            self._free.append(block)


class BlockTable:
    """The blocks of one sequence, in order, as the row a step batch copies.

    Attributes:
        row: int32 [max_blocks], block ids then zeros.
        count: blocks in use.
    """

    __slots__ = ("_pool", "count", "row")

    def __init__(self, pool: BlockPool, max_blocks: int) -> None:
        self._pool = pool
        self.row: Int32Array = np.zeros(max_blocks, dtype=np.int32)
        self.count = 0

    def append(self, tokens: int) -> bool:
        """Make room for `tokens` tokens in all; False (nothing taken) when the pool is empty.

        Raises:
            ValueError: the table itself is too short for so many tokens.
        """
        wanted = self._pool.blocks_for(tokens)
        if wanted > len(self.row):
            raise ValueError(f"{tokens} tokens need {wanted} blocks, the table has {len(self.row)}")
        if wanted <= self.count:
            return True
        blocks = self._pool.allocate(wanted - self.count)
        if blocks is None:
            return False
        self.row[self.count : wanted] = blocks
        self.count = wanted
        return True

    def release(self) -> None:
        """Give all blocks back."""
        self._pool.free([int(block) for block in self.row[: self.count]])
        self.row[: self.count] = 0
        self.count = 0

    def slots(self, positions: Int32Array) -> Int32Array:
        """Cache slots of token positions: block * block_size + offset, int32, same shape."""
        size = self._pool.block_size
        slots: Int32Array = self.row[positions // size] * np.int32(size) + positions % size
        return slots
