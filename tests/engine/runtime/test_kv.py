"""Blocks are handed out once, given back once, and an empty pool is an answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.engine.runtime.kv import BlockPool, BlockTable


def test_allocates_all_or_none():
    pool = BlockPool(4, 8)
    assert pool.allocate(3) is not None
    assert pool.allocate(2) is None
    assert pool.free_blocks == 1


def test_a_block_freed_twice_or_never_taken_is_refused():
    pool = BlockPool(2, 8)
    (block,) = pool.allocate(1)
    pool.free([block])
    for wrong in (block, 7, -1):
        with pytest.raises(ValueError, match=f"block {wrong} is not allocated"):
            pool.free([wrong])


@pytest.mark.parametrize(("blocks", "size"), [(0, 8), (8, 0)])
def test_a_pool_without_room_is_refused(blocks, size):
    with pytest.raises(ValueError, match="a pool needs"):
        BlockPool(blocks, size)


def test_table_grows_by_whole_blocks_and_reports_exhaustion_without_taking():
    pool = BlockPool(3, 4)
    table, other = BlockTable(pool, 8), BlockTable(pool, 8)
    assert table.append(5)
    assert (table.count, pool.free_blocks) == (2, 1)
    assert table.append(8)
    assert table.count == 2
    assert not other.append(5)
    assert (other.count, pool.free_blocks) == (0, 1)
    table.release()
    assert pool.free_blocks == 3
    assert other.append(5)


def test_a_table_too_short_is_named():
    with pytest.raises(ValueError, match="9 tokens need 3 blocks, the table has 2"):
        BlockTable(BlockPool(8, 4), 2).append(9)


def test_slots_follow_the_table():
    table = BlockTable(BlockPool(8, 4), 4)
    table.append(9)
    table.row[:3] = (5, 1, 7)
    slots = table.slots(np.array([0, 3, 4, 8], dtype=np.int32))
    assert slots.tolist() == [20, 23, 4, 28]
    assert slots.dtype == np.int32


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30), st.booleans()), max_size=40))
def test_no_two_tables_share_a_block(actions):
    pool = BlockPool(20, 4)
    tables = [BlockTable(pool, 8) for _ in range(6)]
    for index, tokens, release in actions:
        tables[index].release() if release else tables[index].append(tokens)
        held = [int(b) for table in tables for b in table.row[: table.count]]
        assert len(held) == len(set(held))
        assert len(held) + pool.free_blocks == 20
