"""Operators of ours that would read what they write are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.paged import Heads, paged_batch
from support.toys import traced
from torch import Tensor

from vcc.cache.errors import CompileError
from vcc.engine.ops import native_torch
from vcc.engine.ops.register import load_ops

CACHE = torch.zeros(2, 4, 16, 2, 16)


def inputs(*names: str) -> dict[str, Tensor]:
    found = {
        "k": torch.randn(64, 32),
        "cache": CACHE.clone(),
        "slots": torch.arange(64, dtype=torch.int32),
    }
    return {name: found[name] for name in names}


def test_keys_that_lie_in_the_cache_they_are_written_to() -> None:
    load_ops()

    def model(m: Any, cache: Tensor, slots: Tensor) -> Tensor:
        keys = cache[0].view(64, 32)
        torch.ops.vcc.kv_write(keys, keys, cache, slots)
        return cache.sum()

    with pytest.raises(CompileError, match="kv_write writes into memory that it reads") as caught:
        traced(model, inputs("cache", "slots"), {})
    assert "its k (" in str(caught.value)
    assert caught.value.hint == "hand it a copy: k.clone()"


def test_a_copy_and_views_of_one_tensor_that_is_only_read_are_taken() -> None:
    load_ops()

    def model(m: Any, k: Tensor, cache: Tensor, slots: Tensor) -> Tensor:
        torch.ops.vcc.kv_write(k, k, cache, slots)
        keys = cache[0].view(64, 32).clone()
        torch.ops.vcc.kv_write(keys, keys, cache, slots)
        return cache.sum()

    assert traced(model, inputs("k", "cache", "slots"), {})


@pytest.mark.parametrize("compiled", [True, False])
def test_the_results_of_attention_may_lie_over_its_queries(compiled: bool) -> None:
    load_ops()
    run = torch.ops.vcc.paged_attention if compiled else native_torch.paged_attention
    batch = paged_batch(Heads(4, 2, 16), [(90, 40), (700, 1), (2, 1)], padding_rows=2)
    want = batch.run(run)
    over = batch.q.clone()
    indices = (batch.block_table, batch.seq_lens, batch.query_start)
    run(over, batch.kv_cache, *indices, over, 16**-0.5)
    assert torch.equal(over, want)
