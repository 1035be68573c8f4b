"""Our product of batches held to torch's, by Triton's interpreter or on a device.

TRITON_INTERPRET=1 python -m support.product_cases float32
"""

from __future__ import annotations

import sys

import torch

from support.kernel_cases import held
from vcc.engine.ops.triton import wrapped_product

SIZES = ((1, 1, 1, 1), (3, 64, 64, 32), (2, 65, 3, 33), (5, 7, 130, 96), (1, 200, 9, 5))
"""Matrices, rows, columns, and what is summed over."""


def check(dtype: torch.dtype, device: str = "cpu") -> None:
    """Every size, with a left side that is a view, and what lies outside each tile left alone."""
    for count, rows, columns, depth in SIZES:
        a = torch.randn(count, depth, rows, device=device).to(dtype).transpose(1, 2)
        b = torch.randn(count, depth, columns, device=device).to(dtype)
        a[0, 0, 0] = float("inf") if rows == 7 else 1.0
        found = wrapped_product.batched(a, b, through=lambda kernel: kernel)
        exact = torch.bmm(a.float(), b.float())
        assert torch.equal(found.isfinite(), exact.isfinite())
        sides = (found, exact, torch.bmm(a, b))
        held(*(one.nan_to_num(0.0, 0.0, 0.0) for one in sides))
        one = wrapped_product.single(a[0], b[0], through=lambda kernel: kernel)
        assert torch.equal(one.nan_to_num(), found[0].nan_to_num())
        wide = wrapped_product.batched(a, b, dtype=torch.float32, through=lambda kernel: kernel)
        assert wide.dtype == torch.float32
        finite = exact.isfinite()
        torch.testing.assert_close(wide[finite], exact[finite], rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    torch.manual_seed(0)
    check(getattr(torch, sys.argv[1]))
