"""Our convolution held to torch's, by Triton's interpreter or on a device.

TRITON_INTERPRET=1 python -m support.convolution_cases float32
"""

from __future__ import annotations

import sys

import torch

from support.kernel_cases import held
from vcc.engine.ops.triton.wrapped_convolution import Form, choice, convolved_places

CASES = (
    (2, 32, 40, Form((5, 7), (3, 3), (1, 1), (1, 1), (1, 1))),
    (1, 64, 65, Form((9, 8), (3, 2), (2, 3), (2, 0), (1, 1))),
    (1, 32, 8, Form((11, 11), (3, 3), (1, 1), (2, 1), (2, 3))),
    (3, 96, 16, Form((4, 4), (4, 4), (4, 4), (0, 0), (1, 1))),
    (1, 288, 5, Form((7, 7), (3, 3), (2, 2), (1, 1), (1, 1))),
)
"""Images, channels, filters, sizes; the last is cut along its sum."""


def check(dtype: torch.dtype, device: str = "cpu") -> None:
    """Every case: also that padding is zero where an image has infinities at its edges."""
    for count, channels, filters, form in CASES:
        image = torch.randn(count, channels, *form.size, device=device).to(dtype)
        weight = torch.randn(filters, channels, *form.taps, device=device).to(dtype)
        weight /= weight[0].numel() ** 0.5
        found = convolved_places(
            image.permute(0, 2, 3, 1).contiguous(),
            weight.permute(0, 2, 3, 1).contiguous(),
            form,
            through=lambda kernel: kernel,
        )
        fields = (None, form.stride, form.padding, form.dilation)
        exact = torch.nn.functional.conv2d(image.float(), weight.float(), *fields)
        peer = torch.nn.functional.conv2d(image, weight, *fields)
        assert tuple(exact.shape[2:]) == form.out
        held(found, *(one.permute(0, 2, 3, 1).reshape(found.shape) for one in (exact, peer)))


if __name__ == "__main__":
    torch.manual_seed(0)
    assert choice(16, 5, 2592, 288, 4)[1] == 7, "a case is cut into parts"
    check(getattr(torch, sys.argv[1]))
