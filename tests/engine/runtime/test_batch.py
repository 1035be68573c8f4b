"""A step batch holds the integers of the step interface, in memory that is used again."""

from __future__ import annotations

import numpy as np
import pytest
from support.fake_runner import limits

from vcc.engine.runtime.batch import BatchBuilder, Chunk, as_float32
from vcc.engine.runtime.kv import BlockPool, BlockTable


def _chunk(pool, tokens, start):
    table = BlockTable(pool, 16)
    table.append(start + len(tokens))
    return Chunk(np.asarray(tokens, dtype=np.int32), start, table)


def test_mixed_prefill_and_decode():
    pool = BlockPool(64, 4)
    chunks = [_chunk(pool, [7], 5), _chunk(pool, [1, 2, 3], 0)]
    batch = BatchBuilder(limits()).build(chunks)
    assert batch.input_ids.tolist() == [7, 1, 2, 3]
    assert batch.positions.tolist() == [5, 0, 1, 2]
    assert batch.seq_lens.tolist() == [6, 3]
    assert batch.query_start.tolist() == [0, 1, 4]
    assert batch.logits_index.tolist() == [0, 3]
    blocks = [chunk.table.row for chunk in chunks]
    assert batch.slot_mapping.tolist() == [
        blocks[0][1] * 4 + 1,
        *(blocks[1][0] * 4 + i for i in range(3)),
    ]
    assert batch.block_table.shape == (2, 16)
    assert (batch.tokens, batch.seqs, batch.uniform) == (4, 2, False)
    names = (
        "input_ids",
        "positions",
        "slot_mapping",
        "block_table",
        "seq_lens",
        "query_start",
        "logits_index",
    )
    assert {getattr(batch, name).dtype for name in names} == {np.dtype(np.int32)}


def test_one_token_each_is_uniform():
    pool = BlockPool(64, 4)
    assert BatchBuilder(limits()).build([_chunk(pool, [7], 5), _chunk(pool, [1], 0)]).uniform


def test_builds_reuse_their_memory():
    pool, builder = BlockPool(64, 4), BatchBuilder(limits())
    first = builder.build([_chunk(pool, [7, 8], 0)])
    second = builder.build([_chunk(pool, [9], 3)])
    assert np.shares_memory(first.input_ids, second.input_ids)
    assert (
        first.block_table.__array_interface__["data"]
        == second.block_table.__array_interface__["data"]
    )


def test_more_than_the_limits_is_refused():
    pool, builder = BlockPool(64, 4), BatchBuilder(limits(max_tokens=4, max_seqs=2))
    with pytest.raises(ValueError, match="5 tokens of 1 sequences exceed"):
        builder.build([_chunk(pool, [1] * 5, 0)])
    with pytest.raises(ValueError, match="3 tokens of 3 sequences exceed"):
        builder.build([_chunk(pool, [1], 0) for _ in range(3)])


@pytest.mark.parametrize(
    ("changes", "context"),
    [({}, 64), ({"num_blocks": 5}, 20), ({"max_blocks_per_seq": 2}, 8), ({"max_model_len": 9}, 9)],
)
def test_context_is_the_tightest_limit(changes, context):
    assert limits(**changes).context == context


def test_logits_become_float32_from_torch_bf16_and_numpy():
    torch = pytest.importorskip("torch")
    values = as_float32(torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16))
    assert values.dtype == np.float32
    assert values.tolist() == [[1.5, -2.0]]
    same = np.zeros((1, 2), dtype=np.float32)
    assert as_float32(same) is same
