"""The bytes of a tensor: row-major for any strides, shared where nothing has to move."""

from __future__ import annotations

import pytest
import torch

from vcc.engine.tensor_bytes import tensor_bytes

DTYPES = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (4, 3)], ids=str)
def test_bytes_make_the_same_tensor_again(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = (torch.randn(shape) * 4).to(dtype)
    found = tensor_bytes(values)
    assert len(found) == values.numel() * values.element_size()
    again = torch.from_numpy(found).view(dtype).view(shape)
    assert torch.equal(again.float(), values.float())


def test_no_elements_are_no_bytes() -> None:
    assert tensor_bytes(torch.empty(0, 3)).shape == (0,)


def test_what_is_strided_is_laid_out_row_by_row() -> None:
    values = torch.arange(12, dtype=torch.int32).view(3, 4)
    turned = tensor_bytes(values.T).view("<i4").tolist()
    assert turned == values.T.flatten().tolist()
    assert tensor_bytes(values[:, ::2]).view("<i4").tolist() == [0, 2, 4, 6, 8, 10]


def test_a_dense_tensor_is_not_copied_and_needs_no_gradient() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 3))
    tensor_bytes(weight).view("<f4")[4] = 7.0
    assert weight[1, 1] == 7.0
    copy = tensor_bytes(weight.T)
    copy[:] = 0
    assert weight[1, 1] == 7.0
