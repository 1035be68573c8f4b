"""Blocks of the paged KV cache: a pool that hands them out, and one table a sequence."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import DeviceError

Int32Array: TypeAlias = npt.NDArray[np.int32]


class BlockMemory(Protocol):
    """Memory of KV blocks that comes and goes while they keep their addresses."""

    def hold(self, blocks: int) -> bool:
        """Give the first `blocks` blocks memory; False when there is none for them now."""

    def shortage(self) -> DeviceError:
        """Why `hold` failed last."""


class BlockPool:
    """Free blocks of one KV cache. The lowest are taken first, so that memory behind can go.

    Args:
        num_blocks: blocks in the cache, ids 0..num_blocks-1.
        block_size: tokens a block holds.
        memory: who gives blocks their memory; None where all have it.
    """

    def __init__(self, num_blocks: int, block_size: int, memory: BlockMemory | None = None) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs blocks and slots: {num_blocks} x {block_size}")
        self.num_blocks, self.block_size = num_blocks, block_size
        self._memory = memory
        self._free = list(range(num_blocks))  # sorted, hence a heap
        self._taken = np.zeros(num_blocks, dtype=np.bool_)

    @property
    def reach(self) -> int:
        """One more than the highest block that is taken; 0 when none is."""
        taken = np.flatnonzero(self._taken)
        return int(taken[-1]) + 1 if len(taken) else 0

    @property
    def free_blocks(self) -> int:
        """Blocks that can be allocated now."""
        return len(self._free)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def allocate(self, count: int) -> tuple[int, ...] | None:
        """Take `count` blocks, all or none; None says that blocks or their memory ran out."""
        if count > len(self._free):
            return None
        blocks = tuple(heapq.heappop(self._free) for _ in range(count))
        if blocks and self._memory is not None and not self._memory.hold(blocks[-1] + 1):
            self._put_back(blocks)
            return None
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
            self._put_back((block,))

    def _put_back(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            heapq.heappush(self._free, block)


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
