"""Fused CPU kernels give bit for bit what their parts give; fp8 is rounded as torch rounds it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vcc.engine.ops import native_fused

FP8 = torch.float8_e4m3fn
DTYPES = [torch.float32, torch.bfloat16]
WIDTHS = [1, 14, 16, 48, 100, 256]


def same(got: Tensor, want: Tensor) -> None:
    """Every bit, NaN included."""
    assert got.dtype == want.dtype
    assert torch.equal(bits(got), bits(want))


def bits(value: Tensor) -> Tensor:
    plain = value.contiguous()
    if value.dtype != FP8:
        plain = torch.where(value.isnan(), torch.full_like(value, float("nan")), plain)
    return plain.view(torch.uint8)


def rows(width: int, dtype: torch.dtype, *, odd: bool = True) -> Tensor:
    """Rows of very different sizes in a wider tensor, with NaN, infinity and zeros."""
    x = torch.randn(9, width + 3) * torch.logspace(-5, 4, 9)[:, None]
    if odd:
        x[3, width // 2], x[4, 0], x[5] = float("nan"), float("inf"), 0.0
    return x.to(dtype)[:, :width]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_value_is_rounded_as_torch_rounds_it(
    compiled: Any, level: int, dtype: torch.dtype
) -> None:
    """All 65,536 upper halves of fp32, and between them: silu(128) is 128 exactly."""
    patterns = torch.arange(1 << 16, dtype=torch.int32) << 16
    if dtype == torch.float32:
        low = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=torch.int32)
        patterns = (patterns[:, None] | low).flatten()
    up = patterns.view(torch.float32).to(dtype).view(-1, 64)
    x = torch.cat((torch.full_like(up, 128.0), up), dim=-1)
    one = torch.tensor(128.0)
    got = compiled.silu_and_mul_quant(x, one)
    same(got, native_fused.quantised(compiled.silu_and_mul(x), one))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_norm_and_its_quantisation(
    compiled: Any, level: int, width: int, dtype: torch.dtype
) -> None:
    x, residual, weight = rows(width, dtype), rows(width, dtype).flip(0), rows(width, dtype)[0]
    scale, eps = torch.tensor(0.013), 1e-5
    normed = compiled.rms_norm(x, weight, eps, 1.0)
    same(compiled.rms_norm_quant(x, weight, scale, eps, 1.0), native_fused.quantised(normed, scale))
    after, total = compiled.fused_add_rms_norm(x, residual, weight, eps)
    got, summed = compiled.fused_add_rms_norm_quant(x, residual, weight, scale, eps)
    same(got, native_fused.quantised(after, scale))
    same(summed, total)
    for block, least in blocks_of(width):
        want = native_fused.quantised_dynamic(normed, block, least)
        found = compiled.rms_norm_quant_dynamic(x, weight, eps, 1.0, block, least)
        for one, other in zip(found, want, strict=True):
            same(one, other)
        want = (*native_fused.quantised_dynamic(after, block, least), total)
        found = compiled.fused_add_rms_norm_quant_dynamic(
            x, residual, weight, eps, 0.0, block, least
        )
        for one, other in zip(found, want, strict=True):
            same(one, other)


def blocks_of(width: int) -> list[tuple[int, float]]:
    halves = [width // 2] if width % 2 == 0 else []
    return [(block, least) for block in (0, *halves, 1) for least in (0.0, 1e-12, 0.5)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_an_activation_and_its_quantisation(
    compiled: Any, level: int, width: int, dtype: torch.dtype
) -> None:
    x, scale = rows(2 * width, dtype), torch.tensor([[0.02]])
    acts: dict[str, tuple[Any, ...]] = {"silu_and_mul": ((),), "gelu_and_mul": ((True,), (False,))}
    for name, forms in acts.items():
        plain, static, dynamic = (
            getattr(compiled, f"{name}{end}") for end in ("", "_quant", "_quant_dynamic")
        )
        for form in forms:
            made = plain(x, *form)
            same(static(x, scale, *form), native_fused.quantised(made, scale))
            for block, least in blocks_of(width):
                want = native_fused.quantised_dynamic(made, block, least)
                for one, other in zip(dynamic(x, *form, block, least), want, strict=True):
                    same(one, other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tanh", [True, False])
def test_gelu_is_torchs(compiled: Any, level: int, tanh: bool, dtype: torch.dtype) -> None:
    x = torch.cat((torch.linspace(-12, 12, 999), torch.ones(999))).to(dtype)[None]
    want = native_fused.gelu_and_mul(x.float(), tanh)
    close = {"rtol": 2.0**-8, "atol": 2.0**-10} if dtype == torch.bfloat16 else {}
    got = compiled.gelu_and_mul(x, tanh).float()
    torch.testing.assert_close(got, want, **(close or {"rtol": 2.0**-16, "atol": 2.0**-19}))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "half"), [(64, 32), (20, 10), (80, 24), (6, 1)])
def test_norm_and_rotation_of_heads(
    compiled: Any, level: int, width: int, half: int, dtype: torch.dtype
) -> None:
    q, k, _ = torch.randn(7, 8 * width).to(dtype).split([5 * width, 2 * width, width], -1)
    weights = [torch.randn(width).to(dtype) for _ in range(2)]
    cos, sin = torch.randn(7, half), torch.randn(7, half)
    normed = [
        compiled.rms_norm(x.unflatten(-1, (-1, width)), weight, 1e-6, 1.0).flatten(-2)
        for x, weight in zip((q, k), weights, strict=True)
    ]
    want = compiled.rotary_embedding(*normed, cos, sin, width)
    got = compiled.qk_norm_rope(q, k, *weights, cos, sin, width, 1e-6, 1.0)
    for one, other in zip(got, want, strict=True):
        same(one, other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("apart", [False, True])
def test_rotated_keys_lie_in_their_slots(
    compiled: Any, level: int, apart: bool, dtype: torch.dtype
) -> None:
    q, k, v = torch.randn(6, 8 * 20).to(dtype).split([80, 40, 40], -1)
    cos, sin = torch.randn(6, 8), torch.randn(6, 8)
    slots = torch.tensor([0, 5, -1, 31, 8, -1], dtype=torch.int32)
    cache = torch.randn(2, 4, *((2, 8) if apart else (8, 2)), 20).to(dtype)
    cache = cache.transpose(2, 3) if apart else cache
    expected, out = cache.clone(), torch.empty(6, 80, dtype=dtype)
    turned, key = compiled.rotary_embedding(q, k, cos, sin, 20)
    compiled.kv_write(key, v, expected, slots)
    compiled.rope_kv_write(q, k, v, cos, sin, cache, slots, out, 20)
    same(out, turned)
    same(cache, expected)


WRONG: dict[str, tuple[Any, str]] = {
    "a block that does not divide a row": (
        lambda o: o.silu_and_mul_quant_dynamic(torch.zeros(2, 20), 3),
        "block_size must divide the 10 values",
    ),
    "rows without values": (
        lambda o: o.silu_and_mul_quant_dynamic(torch.zeros(2, 0), 0),
        "rows of no values have no scale",
    ),
    "a scale for each row": (
        lambda o: o.silu_and_mul_quant(torch.zeros(2, 20), torch.ones(2)),
        "scale must be one number, it has 2",
    ),
    "a scale in bf16": (
        lambda o: o.silu_and_mul_quant(torch.zeros(2, 20), torch.ones(1).bfloat16()),
        "scale must be Float",
    ),
    "a slot outside the cache": (
        lambda o: rope(o, slots=[0, 64]),
        r"slot_mapping\[1\] is 64, outside the 64 slots",
    ),
    "heads of another size than the cache's": (lambda o: rope(o, width=8), "head_dim is 8"),
    "an output that is not in fp8": (
        lambda o: o.paged_attention_quant(
            torch.zeros(1, 16),
            torch.zeros(2, 4, 16, 1, 16),
            *(torch.zeros(1, n, dtype=torch.int32)[0:1] for n in (1,)),
            torch.zeros(1, dtype=torch.int32),
            torch.zeros(2, dtype=torch.int32),
            torch.zeros(1, 16),
            torch.ones(1),
            1.0,
        ),
        "out must be Float8_e4m3fn",
    ),
}


def rope(ops: Any, width: int = 16, slots: list[int] | None = None) -> None:
    q, k = torch.zeros(2, 32), torch.zeros(2, 16)
    angles, cache = torch.zeros(2, 4), torch.zeros(2, 4, 16, 1, 16)
    table = torch.tensor(slots or [0, 1], dtype=torch.int32)
    ops.rope_kv_write(q, k, k, angles, angles, cache, table, torch.zeros(2, 32), width)


@pytest.mark.parametrize("name", WRONG)
def test_what_a_kernel_cannot_take_is_named(compiled: Any, name: str) -> None:
    call, reason = WRONG[name]
    with pytest.raises(RuntimeError, match=reason):
        call(compiled)
