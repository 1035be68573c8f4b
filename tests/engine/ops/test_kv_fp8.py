"""A KV cache in fp8 on the CPU: every kernel variant, plain torch, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.kernel_cases import Backend
from support.kv_fp8_cases import FP8, attention, same, writes
from support.paged import Heads, paged_batch
from torch.library import opcheck

from vcc.engine.ops import native_fused, native_torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiled_kernels_give_what_plain_torch_gives(
    compiled: Any, level: int, dtype: torch.dtype
) -> None:
    print("torch seed", torch.seed())
    writes(Backend(compiled, dtype))
    attention(Backend(compiled, dtype, small=True))


def test_every_value_is_stored_as_torch_rounds_it(compiled: Any, level: int) -> None:
    """All of bf16: beyond 448 the largest, and NaN stays NaN."""
    values = (torch.arange(1 << 16, dtype=torch.int32) << 16).view(torch.float32).view(-1, 64)
    slots = torch.arange(values.shape[0], dtype=torch.int32)
    cache = torch.zeros(2, values.shape[0] // 16, 16, 1, 64).to(FP8)
    compiled.kv_write(values, values.flip(0), cache, slots)
    want = values.clamp(-448.0, 448.0).to(FP8)
    same(cache[0].view(-1, 64), want)
    same(cache[1].view(-1, 64), want.flip(0))
    assert not cache.float()[0].view(-1, 64)[~values.isnan()].isnan().any()


def test_a_cache_with_heads_before_slots(compiled: Any, level: int) -> None:
    k, slots = torch.randn(9, 48) * 300, torch.tensor([3, -1, 17, 40, 5, 6, 7, 8, 31]).int()
    scale = torch.tensor([0.7, 2.0])
    caches = [torch.zeros(2, 3, 2, 16, 24).to(FP8).transpose(2, 3) for _ in range(2)]
    for run, cache in zip((native_torch.kv_write, compiled.kv_write), caches, strict=True):
        run(k, k.flip(0), cache, slots, scale)
    same(caches[1].contiguous(), caches[0].contiguous())
    batch = paged_batch(Heads(4, 2, 32), [(60, 20), (33, 1)])
    dense = batch.kv_cache.to(FP8)
    strided = dense.transpose(2, 3).contiguous().transpose(2, 3)
    indices, found = (batch.block_table, batch.seq_lens, batch.query_start), []
    for cache in (dense, strided):
        out = torch.empty(batch.q.shape)
        compiled.paged_attention(batch.q, cache, *indices, out, 32**-0.5, 0, 0.0, scale)
        found.append(out)
    assert torch.equal(*found)


def test_a_nan_in_the_cache_reaches_those_who_see_it_and_nobody_else(
    compiled: Any, level: int
) -> None:
    batch = paged_batch(Heads(2, 1, 32), [(150, 150), (40, 1)])
    cache = batch.kv_cache.to(FP8)
    cache.view(torch.uint8)[0, int(batch.block_table[0, 1]), 4] = 0x7F
    out = torch.empty(batch.q.shape)
    indices = (batch.block_table, batch.seq_lens, batch.query_start)
    compiled.paged_attention(batch.q, cache, *indices, out, 0.2)
    assert out[:20].isfinite().all()
    assert out[20:150].isnan().all()
    assert out[150].isfinite().all()


BAD = {
    "three": (torch.ones(3), FP8),
    "bf16": (torch.ones(2, dtype=torch.bfloat16), FP8),
    "no fp8": (torch.ones(2), torch.float32),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "compiled"])
def test_scales_that_do_not_go_with_the_cache_are_refused(
    compiled: Any, bad: str, plain: bool
) -> None:
    scale, dtype = BAD[bad]
    cache, slots = torch.zeros(2, 2, 16, 1, 16).to(dtype), torch.arange(3).int()
    k, ops = torch.randn(3, 16), native_torch if plain else compiled
    with pytest.raises((ValueError, RuntimeError), match="kv_scale"):
        ops.kv_write(k, k, cache, slots, scale)
    tables = (torch.zeros(1, 1).int(), torch.tensor([3]).int(), torch.tensor([0, 3]).int())
    with pytest.raises((ValueError, RuntimeError), match="kv_scale"):
        ops.paged_attention(k, cache, *tables, torch.empty(3, 16), 1.0, 0, 0.0, scale)
    turn, rope = (torch.rand(3, 8), torch.rand(3, 8)), native_fused if plain else compiled
    with pytest.raises((ValueError, RuntimeError), match="kv_scale"):
        rope.rope_kv_write(k, k, k, *turn, cache, slots, torch.empty(3, 16), 16, scale)


@pytest.mark.parametrize("scaled", [True, False])
def test_fakes_agree_with_the_implementations(ops: Any, scaled: bool) -> None:
    batch = paged_batch(Heads(4, 2, 16), [(9, 3), (2, 1)], padding_rows=1)
    cache, k = batch.kv_cache.to(FP8), torch.randn(5, 32)
    slots, scale = torch.tensor([3, -1, 7, 8, 9]).int(), torch.tensor([0.5, 2.0])
    more = (scale,) if scaled else ()
    indices = (batch.block_table, batch.seq_lens, batch.query_start)
    rest = (0.25, 0, 0.0, *more) if scaled else (0.25,)
    # Torch's look at aliases multiplies arguments, which it cannot do in fp8.
    checks = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    opcheck(ops.kv_write.default, (k, k.flip(0), cache, slots, *more), test_utils=checks)
    out = torch.empty(batch.q.shape)
    opcheck(ops.paged_attention.default, (batch.q, cache, *indices, out, *rest), test_utils=checks)
