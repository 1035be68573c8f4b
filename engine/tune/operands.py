"""Values for the operands of products that are tried or timed, as raw bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vcc.engine.graphs.table.layout import SCALE_BLOCK
from vcc.engine.tune.record import A_SCALE, W_SCALE, A, C, W, operand_sizes
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.storable import scale_columns

Bits = np.ndarray[Any, Any]

PART = 1_000_003
"""Random values that are made; more are the same again."""

WHOLE = np.array([0x00, 0x38, 0x40, 0xB8, 0xC0], np.uint8)
"""0, 1, 2, -1 and -2 in float8_e4m3fn: any order of sums of their products gives the same."""

POWERS = np.array([0.0625, 0.125, 0.25, 0.5, 1.0], np.float32)
"""Scales of which products are exact."""

ADDENDS = np.arange(-8, 9, dtype=np.float32)


def operands_of(shape: GemmShape, seed: int = 0) -> dict[int, Bits]:
    """What a product reads, by the index of the operand.

    Normal values; of a scaled product small integers and powers of two, so that its result is known
    to the bit (`exact_part`).
    """
    if shape.scales:
        return _scaled(shape, seed)
    counts = {A: shape.m * shape.k, W: shape.n * shape.k}
    if shape.has_c:
        counts[C] = shape.m * shape.n
    return {i: random_bits(count, shape.dtype, 3 * seed + i) for i, count in counts.items()}


def _scaled(shape: GemmShape, seed: int) -> dict[int, Bits]:
    left, right = operand_sizes(shape, 0)[A_SCALE:]
    found = {
        A: _drawn(WHOLE, shape.m * shape.k, 5 * seed),
        W: _drawn(WHOLE, shape.n * shape.k, 5 * seed + 1),
        A_SCALE: _drawn(POWERS, left // POWERS.itemsize, 5 * seed + 2),
        W_SCALE: _drawn(POWERS, right // POWERS.itemsize, 5 * seed + 3),
    }
    if shape.has_c:
        found[C] = rounded(_drawn(ADDENDS, shape.n, 5 * seed + 4), shape.out)
    return found


def _drawn(values: Bits, count: int, seed: int) -> Bits:
    picked = np.random.default_rng(seed).integers(0, len(values), min(count, PART))
    return np.resize(values[picked], count)


def random_bits(count: int, dtype: str, seed: int) -> Bits:
    """Normal values as raw bits; a long array repeats a part whose length no size divides."""
    values = np.random.default_rng(seed).standard_normal(min(count, PART), np.float32)
    return np.resize(_cut(values, dtype), count)


def _cut(values: Bits, dtype: str) -> Bits:
    """Values as bits of a type, without the digits that it has not."""
    words = values.view(np.uint32)
    if dtype == "float32":
        return words
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    if dtype == "bfloat16":
        return (words >> 16).astype(np.uint16)
    exponent = ((words >> 23) & 0xFF).astype(np.int32) - 120
    bits = (words >> 31 << 7) | (exponent.clip(0, 14).astype(np.uint32) << 3) | (words >> 20 & 7)
    return np.where(exponent > 0, bits, 0).astype(np.uint8)


def rounded(values: Bits, dtype: str) -> Bits:
    """float32 values as bits of a wider type than fp8, to the nearest, ties to even."""
    if dtype == "float32":
        return values.astype(np.float32).view(np.uint32)
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    words = values.astype(np.float32).view(np.uint32)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(np.uint16)


MOST_ROWS, MOST_COLUMNS = 4, 512
"""Of a result that are held against arithmetic."""


def exact_part(shape: GemmShape, given: dict[int, Bits]) -> tuple[Bits, Bits, Bits]:
    """Rows and columns of a scaled product's result, and the bits that stand there."""
    rows, columns = _spread(shape.m, MOST_ROWS), _spread(shape.n, MOST_COLUMNS)
    a = _value(given[A].reshape(shape.m, shape.k)[rows])
    w = _value(given[W].reshape(shape.n, shape.k)[columns])
    by_row, by_column = SPREAD[shape.scales](shape, given, rows, columns)
    total = (a * by_row) @ (w * by_column).T
    if shape.has_c:
        total = total + _drawn_value(given[C][columns], shape.out)[None, :]
    return rows, columns, rounded(total.astype(np.float32), shape.out)


Sides = tuple[Bits, ...]
"""Factors of values of a, and of w: they broadcast over these rows, and columns, by k."""


def _one(shape: GemmShape, given: dict[int, Bits], rows: Bits, columns: Bits) -> Sides:
    return given[A_SCALE], given[W_SCALE]


def _rows(shape: GemmShape, given: dict[int, Bits], rows: Bits, columns: Bits) -> Sides:
    return given[A_SCALE][rows, None], given[W_SCALE][columns, None]


def _blocks(shape: GemmShape, given: dict[int, Bits], rows: Bits, columns: Bits) -> Sides:
    """Those of a are [blocks, m], those of w have columns more, as a stored product reads them."""
    across, pitch = scale_columns(shape.k)
    left = given[A_SCALE].reshape(across, shape.m).T[rows]
    right = given[W_SCALE].reshape(-1, pitch)[columns // SCALE_BLOCK, :across]
    return tuple(np.repeat(one, SCALE_BLOCK, 1)[:, : shape.k] for one in (left, right))


SPREAD: Mapping[str, Callable[[GemmShape, dict[int, Bits], Bits, Bits], Sides]] = {
    "tensor": _one,
    "rows": _rows,
    "blocks": _blocks,
}


def _spread(size: int, most: int) -> Bits:
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.int64))


def _value(bits: Bits) -> Bits:
    """The numbers of `WHOLE`, in float64."""
    numbers = np.zeros(256)
    numbers[WHOLE] = (0.0, 1.0, 2.0, -1.0, -2.0)
    return numbers[bits]


def _drawn_value(bits: Bits, dtype: str) -> Bits:
    """float32 of bits of a wider type."""
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    words = bits if dtype == "float32" else bits.astype(np.uint32) << 16
    return words.view(np.float32)
