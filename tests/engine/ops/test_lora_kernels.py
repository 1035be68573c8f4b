"""Low-rank adapters: the compiled kernels and plain torch against a sum written out by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from vcc.engine.ops import native_lora

DTYPES = [torch.float32, torch.bfloat16]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows, slots, rank, width of a row, and of each part of the result."""

    tokens: int
    slots: int
    rank: int
    inner: int
    widths: tuple[int, ...]


SIZES = (
    Sizes(0, 2, 4, 16, (16,)),
    Sizes(1, 1, 1, 7, (5,)),
    Sizes(1, 4, 16, 96, (64, 32, 32)),
    Sizes(9, 2, 3, 33, (17, 1, 40)),
    Sizes(37, 4, 8, 50, (24, 24)),
    Sizes(200, 3, 64, 130, (150, 50)),
)


def drawn(sizes: Sizes, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """x, y, both matrices, and slots of which some are none."""
    parts, outer = len(sizes.widths), sum(sizes.widths)
    x, y = torch.randn(sizes.tokens, sizes.inner), torch.randn(sizes.tokens, outer)
    a = torch.randn(sizes.slots, parts * sizes.rank, sizes.inner) / sizes.inner**0.5
    b = torch.randn(sizes.slots, outer, sizes.rank) / sizes.rank**0.5
    slots = torch.randint(-1, sizes.slots, (sizes.tokens,), dtype=torch.int32)
    return *(one.to(dtype) for one in (x, y, a, b)), slots


def by_row(
    x: Tensor, y: Tensor, a: Tensor, b: Tensor, slots: Tensor, widths: tuple[int, ...]
) -> Tensor:
    """The definition, in fp64."""
    out = y.double()
    for row, slot in enumerate(slots.tolist()):
        if slot < 0:
            continue
        low = (a[slot].double() @ x[row].double()).split(b.shape[2])
        parts = b[slot].double().split(list(widths))
        out[row] += torch.cat([m @ one for m, one in zip(parts, low, strict=True)])
    return out


def _added(ops: Any, given: tuple[Tensor, ...], widths: tuple[int, ...]) -> Tensor:
    x, y, a, b, slots = given
    low = ops.lora_shrink(x, a, slots)
    assert low.dtype == torch.float32
    found: Tensor = ops.lora_expand(y, low, b, slots, list(widths))
    return found


def _close(got: Tensor, want: Tensor, dtype: torch.dtype) -> None:
    """bf16: a unit in the last place of the result, which is rounded once."""
    share = 2.0**-18 if dtype == torch.float32 else 2.0**-8
    assert got.dtype == dtype
    if want.numel():
        assert float((got.double() - want).abs().max()) <= share * float(want.abs().max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_adapters_add_their_product_by_row(
    compiled: Any, level: int, sizes: Sizes, dtype: torch.dtype
) -> None:
    given = drawn(sizes, dtype)
    _close(_added(compiled, given, sizes.widths), by_row(*given, sizes.widths), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_adapters_in_plain_torch_add_their_product_by_row(sizes: Sizes, dtype: torch.dtype) -> None:
    given = drawn(sizes, dtype)
    _close(_added(native_lora, given, sizes.widths), by_row(*given, sizes.widths), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_give_the_same_bits_alone_and_in_a_batch(
    compiled: Any, level: int, dtype: torch.dtype
) -> None:
    widths = (40, 24)
    x, y, a, b, slots = drawn(Sizes(61, 3, 8, 70, widths), dtype)
    whole = _added(compiled, (x, y, a, b, slots), widths)
    for row in range(len(x)):
        one = slice(row, row + 1)
        alone = _added(compiled, (x[one], y[one], a, b, slots[one]), widths)
        assert torch.equal(whole[one], alone)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_without_an_adapter_keep_their_bits_beside_one_of_nan(
    ops: Any, dtype: torch.dtype
) -> None:
    widths = (40, 24)
    x, y, a, b, slots = drawn(Sizes(20, 3, 8, 70, widths), dtype)
    slots[::2], slots[1], slots[3], slots[5] = -1, 0, 99, 2
    y[:, 7] = float("inf")
    a[0, 3, 5] = b[2, 1, 1] = float("nan")
    for run in (ops, native_lora):
        found = _added(run, (x, y, a, b, slots), widths)
        assert torch.equal(found[::2], y[::2])
        assert torch.equal(found[3], y[3]), "a slot that is none of the stacked ones is none"
        assert found[1, :40].isnan().all()
        assert not found[1, 40:].isnan().any()
        assert found[5, 1].isnan()


def test_rows_of_any_stride(compiled: Any) -> None:
    widths = (16, 16)
    x, y, a, b, slots = drawn(Sizes(11, 2, 4, 24, widths), torch.float32)
    want = _added(compiled, (x, y, a, b, slots), widths)
    wide_x, wide_y = torch.zeros(11, 40), torch.zeros(11, 50)
    wide_x[:, 8:32], wide_y[:, 9:41] = x, y
    found = _added(compiled, (wide_x[:, 8:32], wide_y[:, 9:41], a, b, slots), widths)
    assert torch.equal(found, want)
