"""vcc::scaled_linear: compiled kernels equal plain torch for every scale, shape and byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from vcc.engine import native
from vcc.engine.ops.native_scaled import scaled_linear as plain
from vcc.engine.ops.register import load_ops

FP8 = torch.float8_e4m3fn
compiled = pytest.mark.skipif(load_ops().name != "cpu", reason="no compiled kernels here")


@pytest.fixture(params=[2, 3, 4])
def level(request: pytest.FixtureRequest) -> Iterator[int]:
    """The kernels of each instruction set that this CPU has."""
    import ctypes

    library = ctypes.CDLL(str(native.library("vcc_ops")))
    used = library.vcc_ops_use_level(request.param)
    if used != request.param:
        pytest.skip(f"this CPU has level {used}")
    yield used
    library.vcc_ops_use_level(4)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape).mul(30).to(FP8)


def scales(*shape: int) -> Tensor:
    return torch.rand(shape) + 0.1


def cases(tokens: int, width: int, depth: int) -> Iterator[tuple[Tensor, Tensor, list[int]]]:
    """x_scale, w_scale and ranges of each form."""
    across, down = -(-depth // 128), -(-width // 128)
    yield scales(1), scales(width), []
    yield scales(1), scales(3), [width // 2, 0, width - width // 2]
    yield scales(tokens, 1), scales(width), []
    yield scales(tokens, across), scales(down, across), []


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [0, 1, 3, 8, 9, 70])
def test_compiled_kernels_equal_plain_torch(level: int, tokens: int, dtype: torch.dtype) -> None:
    torch.manual_seed(tokens)
    for width, depth in ((70, 33), (257, 384), (1, 128)):
        x, weight = drawn(tokens, depth), drawn(width, depth)
        for x_scale, w_scale, ranges in cases(tokens, width, depth):
            for bias in (None, torch.randn(width).to(dtype)):
                rest = (x_scale, w_scale, bias, ranges, dtype)
                got = torch.ops.vcc.scaled_linear(x, weight, *rest)
                want = plain(x, weight, *rest)
                assert (got.dtype, got.shape) == (dtype, want.shape)
                most = want.abs().max() if tokens else 1.0
                allowed = 1e-5 if dtype is torch.float32 else 2**-7
                assert bool(((got - want).abs() <= allowed * most).all())


@compiled
def test_every_byte_is_the_number_that_torch_says(level: int) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(FP8)[:, None]
    one, rest = torch.ones(1, 1).to(FP8), (None, [], torch.float32)
    as_weight = torch.ops.vcc.scaled_linear(one, every, torch.ones(1), torch.ones(256), *rest)
    as_row = torch.ops.vcc.scaled_linear(every, one, torch.ones(1), torch.ones(1), *rest)
    for got in (as_weight.flatten(), as_row.flatten()):
        torch.testing.assert_close(got, every.flatten().float(), rtol=0, atol=0, equal_nan=True)


def test_rows_may_have_leading_dimensions_and_strides() -> None:
    x, weight = drawn(6, 80), drawn(5, 64)
    rest = (scales(5), None, [], torch.float32)
    rows = torch.ops.vcc.scaled_linear(x[:, :64], weight, torch.ones(1), *rest)
    cube = torch.ops.vcc.scaled_linear(
        x[:, :64].contiguous().view(2, 3, 64), weight, torch.ones(1), *rest
    )
    assert torch.equal(rows, cube.flatten(0, 1))


@compiled
@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("x must be", {"x": torch.ones(2, 64)}),
        ("weight must be", {"weight": torch.ones(8, 64)}),
        ("columns of x", {"weight": drawn(8, 32)}),
        ("x_scale must have", {"x_scale": scales(3, 1)}),
        ("the rows of weight", {"w_scale": scales(7)}),
        ("blocks of rows", {"w_scale": scales(2, 1), "x_scale": scales(2, 1)}),
        ("add up to the 8", {"w_scale": scales(2), "ranges": [4, 5]}),
        ("add up to the 8", {"w_scale": scales(2), "ranges": [4, 3]}),
        ("w_scale must be Float", {"w_scale": scales(8).double()}),
        ("the dtype of the result", {"bias": torch.ones(8).bfloat16()}),
        ("must be float32 or bfloat16", {"dtype": torch.float16}),
    ],
)
def test_what_does_not_fit_is_refused_by_name(message: str, change: dict[str, object]) -> None:
    given: dict[str, object] = {
        "x": drawn(2, 64),
        "weight": drawn(8, 64),
        "x_scale": scales(1),
        "w_scale": scales(8),
        "bias": None,
        "ranges": [],
        "dtype": torch.float32,
    }
    with pytest.raises(RuntimeError, match=message):
        torch.ops.vcc.scaled_linear(*(given | change).values())
