"""The compiled kernels against the plain-torch reference in fp32, for every variant of this CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.paged import Heads, paged_batch

from vcc.engine.ops import native_torch

DTYPES = [torch.float32, torch.bfloat16]
HEADS = [
    Heads(1, 1, 16),
    Heads(4, 2, 64),
    Heads(8, 1, 80),
    Heads(3, 3, 96),
    Heads(6, 2, 128),
    Heads(4, 4, 256),
    Heads(5, 1, 20),
]
BATCHES = [
    [(1, 1)],
    [(130, 130)],
    [(700, 1), (64, 64), (65, 2), (1500, 1), (300, 40)],
    [(1100, 3), (513, 16)],
]
RULES = [(0, 0.0), (37, 0.0), (64, 30.0), (0, 5.0)]


def error_within_rounding(got: torch.Tensor, want: torch.Tensor) -> None:
    """fp32: 256 products of size one, each rounded (2^-16); bf16: one unit of its last place."""
    assert want.dtype == torch.float32
    rtol, atol = (2.0**-8, 2.0**-10) if got.dtype == torch.bfloat16 else (2.0**-16, 2.0**-16)
    torch.testing.assert_close(got.float(), want, atol=atol, rtol=rtol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_attention(compiled: Any, level: int, heads: Heads, dtype: torch.dtype) -> None:
    for sequences in BATCHES:
        batch = paged_batch(heads, sequences, dtype, padding_rows=3, padding_sequences=2)
        for window, cap in RULES:
            rule = {"sliding_window": window, "soft_cap": cap}
            want = batch.float().run(native_torch.paged_attention, **rule)
            error_within_rounding(batch.run(compiled.paged_attention, **rule), want)


@pytest.mark.parametrize("group", range(1, 9))
def test_every_group_size(compiled: Any, level: int, group: int) -> None:
    batch = paged_batch(Heads(2 * group, 2, 32), [(90, 1), (70, 3), (80, 33)])
    want = batch.run(native_torch.paged_attention)
    error_within_rounding(batch.run(compiled.paged_attention), want)


@pytest.mark.parametrize("block_size", [1, 8, 48, 100])
def test_block_sizes_and_windows_across_their_edges(compiled: Any, block_size: int) -> None:
    batch = paged_batch(Heads(4, 2, 32), [(201, 70), (130, 1)], block_size=block_size)
    for window in (1, block_size, block_size + 1, 63, 64, 65, 500):
        want = batch.run(native_torch.paged_attention, sliding_window=window)
        error_within_rounding(batch.run(compiled.paged_attention, sliding_window=window), want)


def test_a_cache_with_heads_before_slots(compiled: Any) -> None:
    batch = paged_batch(Heads(4, 2, 32), [(60, 20), (33, 1)])
    want = batch.run(native_torch.paged_attention)
    strided = batch.kv_cache.transpose(2, 3).contiguous().transpose(2, 3)
    indices = (batch.block_table, batch.seq_lens, batch.query_start)
    out = torch.empty_like(want)
    compiled.paged_attention(batch.q, strided, *indices, out, 32**-0.5)
    error_within_rounding(out, want)


def test_each_sequence_gives_the_same_bits_alone_and_in_a_batch(compiled: Any) -> None:
    batch = paged_batch(Heads(4, 2, 64), [(700, 1), (200, 150), (90, 4)])
    whole = batch.run(compiled.paged_attention)
    for i in range(3):
        begin, end = batch.query_start[i : i + 2].tolist()
        out = torch.empty(end - begin, 256)
        starts = torch.tensor([0, end - begin], dtype=torch.int32)
        rows = slice(i, i + 1)
        indices = (batch.block_table[rows], batch.seq_lens[rows], starts)
        compiled.paged_attention(batch.q[begin:end], batch.kv_cache, *indices, out, 0.125)
        assert torch.equal(out, whole[begin:end])


@pytest.fixture
def threads() -> Iterator[Any]:
    """`torch.set_num_threads`, restored afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_the_number_of_threads_does_not_change_a_bit(compiled: Any, threads: Any) -> None:
    batch = paged_batch(Heads(8, 2, 64), [(3000, 1), (900, 900), (513, 2)])
    x = torch.randn(300, 512)
    results = []
    for count in (1, 2, 3, 8):
        threads(count)
        norm = compiled.rms_norm(x, x[0].contiguous(), 1e-6)
        results.append((batch.run(compiled.paged_attention), norm, compiled.silu_and_mul(x)))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 64), (7, 100), (33, 4096), (2, 3, 24), (0, 16)])
def test_norms(compiled: Any, level: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, residual = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    weight = torch.randn(shape[-1]).to(dtype)
    for offset in (0.0, 1.0):
        want = native_torch.rms_norm(x.float(), weight.float(), 1e-5, offset)
        error_within_rounding(compiled.rms_norm(x, weight, 1e-5, offset), want)
        y, total = compiled.fused_add_rms_norm(x, residual, weight, 1e-5, offset)
        assert torch.equal(total, x + residual)
        want = native_torch.rms_norm(total.float(), weight.float(), 1e-5, offset)
        error_within_rounding(y, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 8, 16, 100, 1376])
def test_silu_and_mul(compiled: Any, level: int, width: int, dtype: torch.dtype) -> None:
    x = (10 * torch.randn(9, 2 * width + 3)).to(dtype)[:, : 2 * width]
    error_within_rounding(compiled.silu_and_mul(x), native_torch.silu_and_mul(x.float()))


def test_silu_of_extreme_values(compiled: Any, level: int) -> None:
    gate = torch.tensor([-1e4, -100.0, -88.0, 0.0, 88.0, 89.0, 1e4, float("inf"), float("nan")])
    x = torch.cat((gate, torch.ones_like(gate)))[None]
    want = native_torch.silu_and_mul(x)
    torch.testing.assert_close(
        compiled.silu_and_mul(x), want, equal_nan=True, atol=1e-30, rtol=1e-5
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("dim", "rotary"), [(16, 16), (64, 64), (80, 32), (128, 128), (20, 12)])
def test_rotary(compiled: Any, level: int, dim: int, rotary: int, dtype: torch.dtype) -> None:
    qkv = torch.randn(11, 6 * dim).to(dtype)
    q, k = qkv[:, : 4 * dim], qkv[:, 4 * dim : 5 * dim]
    cos, sin = torch.rand(11, rotary // 2), torch.rand(11, rotary // 2)
    want = native_torch.rotary_embedding(q.float(), k.float(), cos, sin, dim)
    for got, reference in zip(compiled.rotary_embedding(q, k, cos, sin, dim), want, strict=True):
        error_within_rounding(got, reference)
        assert got.is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES)
def test_kv_write_equals_the_reference(compiled: Any, dtype: torch.dtype) -> None:
    qkv = torch.randn(600, 96).to(dtype)
    k, v = qkv[:, :32], qkv[:, 32:64]
    slots = torch.randperm(800)[:600].int()
    slots[::7] = -1
    for dims in ((2, 50, 16, 2, 16), (2, 50, 2, 16, 16)):
        cache = torch.randn(dims).to(dtype)
        cache = cache if dims[2] == 16 else cache.transpose(2, 3)
        want = cache.clone(memory_format=torch.preserve_format)
        native_torch.kv_write(k, v, want, slots)
        compiled.kv_write(k, v, cache, slots)
        assert torch.equal(cache, want)


def test_nan_shows_in_the_rows_that_see_it_and_nowhere_else(compiled: Any, level: int) -> None:
    batch = paged_batch(Heads(2, 1, 32), [(150, 150), (40, 1)])
    batch.kv_cache[0, int(batch.block_table[0, 1]), 4] = float("nan")
    out = batch.run(compiled.paged_attention)
    assert out[:20].isfinite().all()
    assert out[20:150].isnan().all()
    assert out[150].isfinite().all()


def test_stale_values_past_the_end_of_a_sequence_are_not_read(compiled: Any, level: int) -> None:
    batch = paged_batch(Heads(2, 1, 32), [(150, 150), (41, 1)])
    for i, length in enumerate((150, 41)):
        last = int(batch.block_table[i, length // 16])
        batch.kv_cache[:, last, length % 16 :] = float("nan")
    assert batch.run(compiled.paged_attention).isfinite().all()
