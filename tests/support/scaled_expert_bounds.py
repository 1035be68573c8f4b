"""What experts with fp8 weights may differ by from eager torch: followed through both roundings.

A sum in another order, or of fewer bits, moves `silu(gate) * up` a little, and fp8 makes a step of
that where it crosses the middle between two values. Which values can cross follows from what the
first sums may differ by, and how far a result then moves from the weights of `down`: each result
has a bound of its own (docs/decisions/0020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

FP8, MOST = torch.float8_e4m3fn, 448.0

FP32_SUMS = 2.0**-16
"""What fp32 sums in another order differ by at most, in units of `size_of`."""

SHORT_SUMS = 2.0**-8
"""The same on tensor cores: 0020 has 2^-10 of the largest of a result, which is four units."""

USUALLY = 0.25
"""Of these: nearly all sums differ by less."""

ROUNDING = {torch.float32: 2.0**-23, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
MANY = 1000
"""Results from which on a root mean square is no draw of a few steps."""

STEEPEST = 1.1
"""Of silu."""


def size_of(left: Tensor, right: Tensor) -> Tensor:
    """Size of `left @ right.T` where signs are random: the root of the sum of squared terms."""
    return (left.square() @ right.square().T).sqrt()


@dataclass(frozen=True, slots=True)
class Inner:
    """What goes into the second product of an expert, fp64.

    Attributes:
        value: of eager torch [rows, I], after fp8.
        far: how far another order of the first sums can move each of it.
    """

    value: Tensor
    far: Tensor


def inner_of(
    left: Tensor,
    gate_up: Tensor,
    rounded: Callable[[Tensor], Tensor],
    scale_of: Callable[[Tensor], Tensor],
    share: float,
) -> Inner:
    """Follow both roundings.

    Args:
        left: rows after fp8, fp64 [rows, H].
        gate_up: weights with their scales, fp64 [2 I, H].
        rounded: to the dtype of the rows, and back to fp64.
        scale_of: the scale of each value, given the values [rows, I].
        share: of `size_of` that the sums may differ by.
    """
    gate, up = torch.nn.functional.linear(left, gate_up).chunk(2, dim=-1)
    by_gate, by_up = (share * size_of(left, gate_up)).chunk(2, dim=-1)
    gated = torch.nn.functional.silu(gate)
    plain = gated * up
    moved = STEEPEST * by_gate * (up.abs() + by_up) + gated.abs() * by_up
    moved = moved + 2.0**-20 * plain.abs()  # the rest of the arithmetic, in fp32
    exact, high = rounded(plain), rounded(plain.abs() + moved)
    low = rounded((plain.abs() - moved).clamp(min=0))
    below, scale, above = scale_of(low), scale_of(exact), scale_of(high)
    value = in_fp8(exact, scale, scale)
    up_by = in_fp8(high, below, above) - value.abs()
    down_by = value.abs() - in_fp8(low, above, below)
    across = value.abs() + in_fp8(rounded((moved - plain.abs()).clamp(min=0)), below, above)
    far = torch.maximum(up_by, torch.where(moved > plain.abs(), across, down_by))
    return Inner(value, far)


def in_fp8(x: Tensor, by: Tensor, times: Tensor) -> Tensor:
    """What fp8 keeps of x / by, times another scale; fp64."""
    return (x.float() / by.float()).clamp(-MOST, MOST).to(FP8).double() * times


@dataclass(slots=True)
class Bounds:
    """Results of eager torch, and what each may differ by: at most, and usually (its square)."""

    want: Tensor
    most: Tensor
    square: Tensor

    @classmethod
    def zero(cls, like: Tensor) -> Bounds:
        """Of no expert yet."""
        return cls(*(torch.zeros(like.shape, dtype=torch.float64, device=like.device),) * 3)

    def add(
        self, rows: Tensor, weight: Tensor, inner_at: Callable[[float], Inner], down: Tensor,
        share: float,
    ) -> None:  # fmt: skip
        """Add an expert.

        Args:
            rows: that go to it.
            weight: of each of them, fp64 [rows, 1].
            inner_at: `inner_of` for a share.
            down: weights with their scales, fp64 [H, I].
            share: as there.
        """
        inner, usual = inner_at(share), inner_at(USUALLY * share).far
        sums = share * size_of(inner.value.abs() + inner.far, down)
        self.want = self.want.index_add(0, rows, weight * (inner.value @ down.T))
        self.most = self.most.index_add(0, rows, weight * (inner.far @ down.abs().T + sums))
        square = size_of(usual, down).square() + (USUALLY * sums).square()
        self.square = self.square.index_add(0, rows, weight.square() * square)

    def check(self, got: Tensor) -> None:
        """Hold results to both.

        Raises:
            AssertionError: how many are off, the first of them, and by how much.
        """
        error = (got.double() - self.want).abs()
        last = ROUNDING[got.dtype] * self.want.abs().clamp(min=torch.finfo(got.dtype).tiny)
        most = self.most + last
        off = ~(error <= most)
        if off.any():
            row, column = off.nonzero()[0].tolist()
            raise AssertionError(
                f"{int(off.sum())} of {off.numel()} results are off, {int(got.isnan().sum())} NaN, "
                f"in rows {off.any(1).nonzero().flatten().tolist()[:9]}; the first at "
                f"{row, column}: {float(got[row, column]):.6g} for "
                f"{float(self.want[row, column]):.6g}, allowed {float(most[row, column]):.2g}"
            )
        if got.numel() < MANY:
            return
        mean = float(error.square().mean().sqrt())
        usual = float((self.square + last**2).mean().sqrt())
        assert mean <= usual, f"root mean square error {mean:.3g} of {got.shape}, usual {usual:.3g}"
