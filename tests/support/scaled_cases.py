"""The Triton product of fp8 values against plain torch: by the interpreter, or on a device.

    TRITON_INTERPRET=1 python -m support.scaled_cases --dtype float32

The interpreter multiplies fp8 as half precision, which holds every value of it, and adds in fp32.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from vcc.engine.ops.native_scaled import scaled_linear as plain
from vcc.engine.ops.triton import wrapped_scaled
from vcc.engine.ops.triton.scaled import SPREAD_LANES, spread_scales

FP8 = torch.float8_e4m3fn
Case = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, list[int], torch.dtype]

SHAPES = (
    *((1, 64, 128), (5, 70, 96), (16, 140, 130), (17, 70, 128), (64, 33, 256)),
    *((70, 200, 128), (131, 257, 130)),
)
"""Rows, columns and depth: all ways of the kernel, whole tiles and parts of them."""

ROUNDING = {torch.float32: 0.0, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""The most by which one rounding to a dtype moves a value, as a share of it."""


def cases(dtype: torch.dtype, device: str) -> Iterator[Case]:
    """Arguments of every form, in every shape."""
    torch.manual_seed(0)
    for rows, columns, depth in SHAPES:
        x = torch.randn(rows, depth).mul(30).to(FP8).to(device)
        weight = torch.randn(columns, depth).mul(30).to(FP8).to(device)
        bias = torch.randn(columns).to(dtype).to(device)
        across, down = -(-depth // 128), -(-columns // 128)
        parts = [columns // 2, columns // 4, columns - columns // 2 - columns // 4]
        forms = (
            ((1,), (columns,), [], None),
            ((1,), (3,), parts, bias),
            ((rows, 1), (2,), [columns // 3, columns - columns // 3], None),
            ((rows, 1), (1,), [columns], bias),
            ((rows, 1), (columns,), [], bias),
            ((rows, across), (down, across), [], bias),
        )
        for x_shape, w_shape, ranges, given in forms:
            scales = [(torch.rand(shape) + 0.1).to(device) for shape in (x_shape, w_shape)]
            yield (x, weight, *scales, given, ranges, dtype)


def check(case: Case) -> None:
    """One call by both, within rounding of the largest result."""
    got = wrapped_scaled.scaled_linear(*case, through=lambda kernel: kernel)
    want = plain(*case[:-1], torch.float32)
    # Tensor cores keep fewer bits of a sum of fp8 values than fp32 has: decision 0020.
    exact = 2.0**-10 if case[0].is_cuda else 2.0**-16
    share = exact + ROUNDING[case[-1]]
    worst = ((got.float() - want).abs().max() / want.abs().max()).item()
    assert worst <= share, (case[0].shape, case[1].shape, case[5], worst)


def check_spread(device: str) -> None:
    """Scales of blocks for more rows: the same bits, and nothing else is written."""
    for rows, across, lead in ((1, 1, 4), (5, 33, 8), (300, 4, 512), (32, 3, 32)):
        scales = torch.randn(across, rows, device=device)
        spread = torch.full((across, lead), -7.0, device=device)
        grid = (-(-rows // SPREAD_LANES), across)
        spread_scales[grid](scales, spread, rows, across, lead, LANES=SPREAD_LANES)
        assert torch.equal(spread[:, :rows], scales), (rows, across, lead)
        assert bool((spread[:, rows:] == -7.0).all()), (rows, across, lead)


def main(arguments: Sequence[str]) -> int:
    """Check every case of a dtype."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    for case in cases(getattr(torch, given.dtype), given.device):
        check(case)
    check_spread(given.device)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
