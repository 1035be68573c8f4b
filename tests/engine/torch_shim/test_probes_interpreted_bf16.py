"""The interpreter's bf16: what is wrong with it, and that the shim's is torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter as tritons

from vcc.engine.torch_shim import interpreted_bf16
from vcc.engine.torch_shim.interpreted_bf16 import exact_bf16

VALUES = (1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-9, 3.4e38, -torch.inf, torch.nan, 1e-41, -0.0)


def patterns(x: torch.Tensor) -> Any:
    return x.bfloat16().view(torch.int16).numpy().view(np.uint16)


def handle(bits: Any) -> Any:
    return tritons.TensorHandle(bits, tl.bfloat16)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By the interpreter, in fp32."""
    zero = tritons.TensorHandle(np.zeros((a.shape[0], b.shape[1]), np.float32), tl.float32)
    builder = tritons.InterpreterBuilder()
    return torch.from_numpy(
        builder.create_dot(handle(patterns(a)), handle(patterns(b)), zero, None, 0).data
    )


def test_interpreted_bf16_exact_bf16() -> None:
    """Wrong without: a Triton in which this fails needs the shim no more."""
    a, b = torch.randn(4, 16).bfloat16(), torch.randn(16, 8).bfloat16()
    wanted = a.float() @ b.float()
    before = tritons._convert_float
    assert not torch.allclose(product(a, b), wanted)
    with exact_bf16():
        torch.testing.assert_close(product(a, b), wanted)
    assert tritons._convert_float is before
    with pytest.raises(ValueError, match="inside"), exact_bf16():
        raise ValueError("inside")
    assert tritons._convert_float is before


def test_interpreted_bf16_widened_and_narrowed() -> None:
    x = torch.cat([torch.tensor(VALUES), torch.randn(500) * 10.0 ** torch.randint(-9, 9, (500,))])
    with exact_bf16():
        found = tritons._convert_float(x.numpy(), tl.float32, tl.bfloat16, None)
        back = tritons._convert_float(found, tl.bfloat16, tl.float32, None)
    mine = torch.from_numpy(found.view(np.int16)).view(torch.bfloat16)
    torch.testing.assert_close(mine, x.bfloat16(), rtol=0, atol=0, equal_nan=True)
    wide = torch.from_numpy(back)
    torch.testing.assert_close(wide, x.bfloat16().float(), rtol=0, atol=0, equal_nan=True)
    assert interpreted_bf16.narrowed(x.view(1, -1).numpy()).shape == (1, len(x))


def test_interpreted_bf16_widened() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    found = torch.from_numpy(interpreted_bf16.widened(bits))
    wanted = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float()
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_interpreted_bf16_narrowed() -> None:
    """Of all that bf16 has, each is itself again."""
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    wide = interpreted_bf16.widened(bits)
    again = interpreted_bf16.narrowed(wide)
    assert (again == bits)[~np.isnan(wide)].all()
    assert np.isnan(interpreted_bf16.widened(again)[np.isnan(wide)]).all()
