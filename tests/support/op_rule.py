"""The numbers rule for one call of an operator: against fp32, beside plain torch in its type."""

from __future__ import annotations

import torch
from torch import Tensor

from support.cuda_cases import Case
from vcc.engine.ops.native_quant import quantised

FACTOR = 1.25
UNITS = {
    torch.float32: 2.0**-18,
    torch.bfloat16: 2.0**-7,
    torch.float16: 2.0**-10,
    torch.float8_e4m3fn: 2.0**-2,
}
"""A step of a type, relative; in fp32 what sums in another order differ by."""

DYNAMIC = "_quant_dynamic"

FP8 = torch.float8_e4m3fn

FLIPPED = 1e-3
"""Of the largest fp8 value, in the mean: a few values that lie between two steps go either way."""

TOP_STEP, FEW = 32 / 448, 2
"""The largest step of fp8, as a share of the largest value; how many values may be one off."""


def judge(case: Case, got: tuple[Tensor, ...]) -> None:
    """Hold results against the rule: root mean square and largest error, NaN where torch has it.

    An error of 1.25 times plain torch's is allowed in the mean; one value may be a whole step off,
    where two right roundings differ.

    Fp8 results that come with scales of their own are judged by what they stand for, codes times
    scales, beside the scales: one rounding of a row's largest value, a right one, moves the scale,
    and with it the codes of the whole row. So the error of each side is that from what fp8 makes of
    the exact values over the scale that this side took. Where the scale is given, codes are judged
    as they are.

    Raises:
        AssertionError: by how much which result is wrong.
    """
    plain, exact = case.wanted(), case.wanted(wide=True)
    assert [one.shape for one in got] == [one.shape for one in plain], f"{case.op} {case.name}"
    meant = _meant(case, got, plain, exact)
    for at, (mine, theirs) in enumerate(zip(got, plain, strict=True)):
        what = f"{case.op} {case.name}, result {at}"
        assert mine.dtype == theirs.dtype, what
        if not mine.is_floating_point():
            assert torch.equal(mine, theirs), what
            continue
        unit = max(UNITS[next(iter(case.tensors.values())).dtype], UNITS[mine.dtype])
        floor = flipped(mine.numel()) if mine.dtype == FP8 else UNITS[torch.float32]
        assert torch.equal(mine.float().isnan(), theirs.float().isnan()), f"{what}: NaN elsewhere"
        ours, theirs, want = (one[at].double() for one in meant)
        judge_one(what, (ours, theirs, want), unit, floor)


def flipped(count: int) -> float:
    """What the mean of so many fp8 results may be off, as a share of the largest value.

    Of a few hundred one that goes the other way is more than `FLIPPED`, where it is large.
    """
    return max(FLIPPED, TOP_STEP * (FEW / max(count, 1)) ** 0.5)


def _meant(
    case: Case, *sides: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Ours, plain torch's and the exact results as they are compared.

    Of dynamic forms the first is the largest value, of which tolerances are shares, plus the error
    of each side: none of the exact one, that beside the exact values over its scales of the others.
    """
    got, plain, exact = sides
    if not case.op.endswith(DYNAMIC):
        return got, plain, exact
    alone = {name: n for name, n in case.numbers.items() if name not in ("block_size", "least")}
    values = Case(case.op.removesuffix(DYNAMIC), "", case.tensors, alone).wanted(wide=True)[0]
    largest = values[values.isfinite()].abs().amax() if bool(values.isfinite().any()) else 0.0
    mine, theirs = (_off(values, *side[:2]) + largest for side in (got, plain))
    return (mine, *got[1:]), (theirs, *plain[1:]), (torch.full_like(mine, largest), *exact[1:])


def _off(values: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    """Codes times scales less what fp8 makes of `values` over these scales, fp64."""
    by_scale = codes.double().unflatten(-1, (scales.shape[-1], -1))
    scale = scales.double().unsqueeze(-1)
    wanted = quantised(values.unflatten(-1, (scales.shape[-1], -1)), scale.float()).double()
    return ((by_scale - wanted) * scale).flatten(-2)


def judge_one(what: str, values: tuple[Tensor, Tensor, Tensor], unit: float, floor: float) -> None:
    """One result: ours, plain torch's and the exact one, fp64.

    Args:
        what: for the error.
        values: of one shape.
        unit: a step of the type, relative.
        floor: what the mean may be off at least, as a share of the largest value.

    Raises:
        AssertionError: as `judge`.
    """
    mine, theirs, want = values
    assert torch.equal(mine.isnan(), theirs.isnan()), f"{what}: NaN elsewhere"
    kept = theirs.isfinite() & want.isfinite()
    assert torch.equal(mine[~kept].nan_to_num(), theirs[~kept].nan_to_num()), what
    if not bool(kept.any()):
        return
    largest = float(want[kept].abs().max())
    errors = [(one[kept] - want[kept]).abs() for one in (mine, theirs)]
    means = [float(one.square().mean().sqrt()) for one in errors]
    floor *= largest
    assert means[0] <= FACTOR * means[1] + floor, f"{what}: rms {means[0]}, plain torch {means[1]}"
    most = [float(one.max()) for one in errors]
    limit = max(FACTOR * most[1], unit * largest) + floor
    assert most[0] <= limit, f"{what}: largest error {most[0]}, plain torch {most[1]}"
