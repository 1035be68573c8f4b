"""Operators over a KV cache in fp8, for every back end: CPU, Triton's interpreter, a device.

    TRITON_INTERPRET=1 python -m support.kv_fp8_cases

What is written is compared byte for byte with plain torch. Attention is held by the numbers rule
against plain torch in fp32 over the same bytes, which bf16 and a scale represent exactly enough.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from support.fused_cases import FP8, convert_as_torch_does
from support.kernel_cases import Backend, held, plain_attention
from support.paged import Heads, PagedBatch, paged_batch
from vcc.engine.ops import native_fused, native_torch

SCALES = (None, (0.031, 1.7))
RULES = ((0, 0.0), (37, 30.0))
MIXED = [(200, 1), (64, 64), (65, 2), (90, 40), (17, 17)]
FEW = [(65, 2), (40, 20), (9, 9)]
DECODE = [(300, 1), (17, 1), (64, 1)]


def scale_of(backend: Backend, scale: tuple[float, float] | None) -> Tensor | None:
    return None if scale is None else torch.tensor(scale, device=backend.device)


def given(scale: Tensor | None) -> tuple[Tensor, ...]:
    """As a model calls: nothing where there are no scales."""
    return () if scale is None else (scale,)


def same(got: Tensor, want: Tensor) -> None:
    """Every byte, NaN by being NaN."""
    if not torch.equal(got.float().isnan(), want.float().isnan()):
        raise AssertionError("NaN is elsewhere")
    bits = [torch.where(one.float().isnan(), 127, one.view(torch.uint8)) for one in (got, want)]
    if not torch.equal(*bits):
        raise AssertionError(f"{int((bits[0] != bits[1]).sum())} bytes differ")


def writes(backend: Backend) -> None:
    """Values beyond the largest, infinities, NaN and tiny ones; skipped rows; strided rows."""
    for dim, half in ((64, 32), (80, 20)):
        for scale in (scale_of(backend, one) for one in SCALES):
            qkv = backend.randn(11, 8 * dim)
            qkv[1] *= 2000.0
            qkv[2], qkv[3, 5 * dim], qkv[5, 7 * dim + 3] = 0.0, float("nan"), float("inf")
            qkv[4] *= 2.0**-8
            q, k, v = qkv.split([4 * dim, 2 * dim, 2 * dim], -1)
            slots = torch.randperm(80)[:11].int()
            slots[[0, 6]] = -1
            slots = slots.to(backend.device)
            empty = torch.full((2, 5, 16, 2, dim), 0x51, dtype=torch.uint8, device=backend.device)
            caches = [empty.clone().view(FP8) for _ in range(2)]
            native_torch.kv_write(k, v, caches[0], slots, *given(scale))
            backend.ops.kv_write(k, v, caches[1], slots, *given(scale))
            same(caches[1], caches[0])
            angle = (10 * torch.randn(11, half)).to(backend.device)
            turn = (angle.cos(), angle.sin())
            outs = [torch.zeros_like(q.contiguous()) for _ in range(2)]
            for ops, cache, out in zip((native_fused, backend.ops), caches, outs, strict=True):
                ops.rope_kv_write(q, k, v, *turn, cache, slots, out, dim, *given(scale))
            near(caches[1], caches[0])


def near(got: Tensor, want: Tensor) -> None:
    """The same, but where a sum that was rounded otherwise went to the next step."""
    if not torch.equal(got.float().isnan(), want.float().isnan()):
        raise AssertionError("NaN is elsewhere")
    a, b = got.float().nan_to_num(), want.float().nan_to_num()
    far = (a - b).abs() > b.abs() / 8 + 2.0**-9
    if far.any() or int((a != b).sum()) > a.numel() // 100:
        raise AssertionError(f"{int(far.sum())} far, {int((a != b).sum())} differ")


def attention(backend: Backend) -> None:
    """Decode rows, prompts and both; windows, caps, groups; scales and none; fp8 results."""
    small = ((Heads(6, 2, 64), SCALES[1:]), (Heads(2, 2, 80), SCALES[:1]))
    for sequences in (FEW, DECODE) if backend.small else (MIXED, DECODE):
        for heads_of, scales in small if backend.small else ((one, SCALES) for one in HEADS):
            for scale in scales:
                batch = paged_batch(
                    heads_of,
                    sequences,
                    backend.dtype,
                    padding_rows=2,
                    padding_sequences=2,
                    width=24,
                )
                spread = (0.4 / scale[0], 1 / scale[1]) if scale else (1.0, 1.0)
                cache = torch.stack([batch.kv_cache[at].float() * spread[at] for at in range(2)])
                _attention(backend, replace(batch, kv_cache=cache.to(FP8)), scale)


HEADS = (Heads(4, 2, 64), Heads(6, 2, 128), Heads(8, 1, 80), Heads(2, 2, 256), Heads(7, 1, 96))


def _attention(backend: Backend, batch: PagedBatch, scale: tuple[float, float] | None) -> None:
    wide = batch.kv_cache.float() * torch.tensor(scale or (1.0, 1.0)).view(2, 1, 1, 1, 1)
    moved = PagedBatch(
        *(
            one.to(backend.device)
            for one in (batch.q, _unwritten_nan(batch), batch.block_table, batch.seq_lens)
        ),
        batch.query_start.to(backend.device),
        batch.rows,
    )
    for window, cap in RULES[scale is None :][:1] if backend.small else RULES:
        rule = {"sliding_window": window, "soft_cap": cap}
        fp32 = replace(batch, q=batch.q.float(), kv_cache=wide)
        want = fp32.run(native_torch.paged_attention, **rule)
        peer = None
        if backend.dtype != torch.float32:
            plain = replace(batch, kv_cache=wide.to(backend.dtype))
            peer = plain.run(plain_attention, **rule)
        more = {} if scale is None else {"kv_scale": scale_of(backend, scale)}
        own = backend.ops
        forms = [own, *([replace(own, force_mixed=True)] if hasattr(own, "force_mixed") else [])]
        for ops in forms:
            got = moved.run(ops.paged_attention, **rule, **more).cpu()
            if got[batch.rows :].any():
                raise AssertionError("rows of no sequence are not zero")
            held(got, want, peer)
            _quantised(backend, ops, moved, got, (window, cap), more)


def _unwritten_nan(batch: PagedBatch) -> Tensor:
    """The cache with NaN wherever no sequence has a key: a masked read of it must not count."""
    block_size = batch.kv_cache.shape[2]
    slots = torch.zeros(batch.kv_cache.shape[1] * block_size, dtype=torch.bool)
    for blocks, length in zip(batch.block_table, batch.seq_lens.tolist(), strict=True):
        places = blocks.long()[:, None] * block_size + torch.arange(block_size)
        slots[places.flatten()[:length]] = True
    written = slots.view(1, -1, block_size, 1, 1)
    return torch.where(written, batch.kv_cache.view(torch.uint8), 0x7F).view(FP8)


def _quantised(
    backend: Backend, ops: Any, batch: PagedBatch, want: Tensor, rule: tuple[int, float], more: Any
) -> None:
    """The same as fp8 over a scale of its own."""
    if not hasattr(ops, "paged_attention_quant"):
        return
    by = torch.tensor([0.02], device=backend.device)
    out = torch.full(batch.q.shape, 7.0, device=backend.device).to(FP8)
    indices = (batch.block_table, batch.seq_lens, batch.query_start)
    scale = batch.kv_cache.shape[-1] ** -0.5
    ops.paged_attention_quant(
        batch.q, batch.kv_cache, *indices, out, by, scale, *rule, *more.values()
    )
    near(out.cpu(), native_fused.quantised(want, by.cpu()))


CASES = (writes, attention)


def main() -> int:
    """Run all cases by the interpreter; a failure is a traceback."""
    from support.triton_ops import TritonOps
    from vcc.engine.torch_shim.profiles import PROFILES

    print("torch seed", torch.seed())
    convert_as_torch_does()
    few = replace(PROFILES["sm_90"], sm_count=3)
    for case in CASES:
        case(Backend(TritonOps(few), torch.float32, small=True))
    writes(Backend(TritonOps(few), torch.float16, small=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
