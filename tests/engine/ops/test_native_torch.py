"""The plain-torch operators against torch's own attention and hand-written formulas."""

from __future__ import annotations

import pytest
import torch
from support.paged import Heads, PagedBatch, paged_batch

from vcc.engine.ops import native_torch

CLOSE = {"atol": 2e-5, "rtol": 1e-4}


def _dense(batch: PagedBatch, i: int, window: int = 0) -> torch.Tensor:
    """Sequence i through scaled_dot_product_attention with an explicit mask."""
    begin, end = batch.query_start[i : i + 2].tolist()
    length, dim = int(batch.seq_lens[i]), batch.kv_cache.shape[-1]
    keys, values = batch.kv_cache[:, batch.block_table[i].long()].flatten(1, 2)[:, :length]
    positions = torch.arange(length - (end - begin), length)[:, None]
    distance = positions - torch.arange(length)[None]
    mask = (distance >= 0) & (distance < window) if window else distance >= 0
    q = batch.q[begin:end].reshape(end - begin, -1, dim).transpose(0, 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        q[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=mask,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1).flatten(1)


@pytest.mark.parametrize("window", [0, 1, 5, 16, 40])
def test_paged_attention_is_dense_attention_of_each_sequence(window: int) -> None:
    batch = paged_batch(
        Heads(6, 2, 16), [(33, 33), (50, 1), (17, 4)], padding_rows=2, padding_sequences=1
    )
    out = batch.run(native_torch.paged_attention, sliding_window=window)
    want = torch.cat([_dense(batch, i, window) for i in range(3)])
    torch.testing.assert_close(out[: batch.rows], want, **CLOSE)
    assert (out[batch.rows :] == 0).all()


def test_long_prefill_goes_through_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = paged_batch(Heads(2, 1, 16), [(70, 60)])
    whole = batch.run(native_torch.paged_attention)
    monkeypatch.setattr(native_torch, "QUERY_CHUNK", 7)
    torch.testing.assert_close(batch.run(native_torch.paged_attention), whole, **CLOSE)


def test_soft_cap_bounds_scores() -> None:
    batch = paged_batch(Heads(1, 1, 8), [(3, 1)])
    keys, values = batch.kv_cache[:, batch.block_table[0, 0].long(), :3, 0]
    scores = 2.0 * torch.tanh(batch.q[0] @ keys.T * 8**-0.5 / 2.0)
    want = torch.softmax(scores, 0) @ values
    out = batch.run(native_torch.paged_attention, soft_cap=2.0)
    torch.testing.assert_close(out[0], want, **CLOSE)


def test_a_key_that_is_nan_shows_in_the_rows_that_see_it() -> None:
    batch = paged_batch(Heads(1, 1, 8), [(20, 20)])
    batch.kv_cache[0, int(batch.block_table[0, 0]), 10] = float("nan")
    out = batch.run(native_torch.paged_attention)
    assert out[:10].isfinite().all()
    assert out[10:].isnan().all()


def test_kv_write_skips_padding_and_writes_both_parts() -> None:
    cache = torch.zeros(2, 3, 4, 2, 8)
    k, v = torch.randn(3, 16), torch.randn(3, 16)
    native_torch.kv_write(k, v, cache, torch.tensor([5, -1, 11], dtype=torch.int32))
    assert torch.equal(cache[0, 1, 1].flatten(), k[0])
    assert torch.equal(cache[1, 2, 3].flatten(), v[2])
    assert int((cache != 0).any(-1).any(-1).sum()) == 4


def test_rotation_keeps_length_and_leaves_the_rest() -> None:
    angles = torch.rand(5, 4)
    q, k = torch.randn(5, 2 * 12), torch.randn(5, 12)
    out, _ = native_torch.rotary_embedding(q, k, angles.cos(), angles.sin(), 12)
    before, after = q.view(5, 2, 12), out.view(5, 2, 12)
    torch.testing.assert_close(after[..., :8].norm(dim=-1), before[..., :8].norm(dim=-1))
    assert torch.equal(after[..., 8:], before[..., 8:])
    turned = torch.complex(before[..., :4], before[..., 4:8]) * torch.polar(
        torch.ones(5, 4), angles
    ).unsqueeze(1)
    torch.testing.assert_close(after[..., :4], turned.real)


def test_the_residual_sum_is_rounded_before_it_is_normalised() -> None:
    x, residual = torch.randn(4, 32).bfloat16(), torch.randn(4, 32).bfloat16()
    weight = torch.randn(32).bfloat16()
    y, total = native_torch.fused_add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(total, x + residual)
    assert torch.equal(y, native_torch.rms_norm(total, weight, 1e-6))
