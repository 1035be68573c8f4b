"""A played forward: what is refused of its inputs, and values on the host in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from vcc.cache.errors import UsageError, VccError
from vcc.engine.graphs.table.types import NodeTable, Region, RegionKind, Role, Symbol, TableTensor
from vcc.engine.runtime.player import host_values
from vcc.engine.runtime.player.forward import check_ranges, sizes_of
from vcc.engine.runtime.player.values import move_values


def table() -> NodeTable:
    tensors = (
        TableTensor("ids", "ids", Role.INPUT, "int64", 0, 0, ("T", "B")),
        TableTensor("x", "x", Role.INPUT, "float32", 0, 4096, ("T", 3, ["*", 2, "B"])),
        TableTensor("y", "y", Role.OUTPUT, "float32", 0, 8192, ("T",)),
    )
    symbols = (Symbol("T", 1, 8), Symbol("B", 2, 16))
    return NodeTable(symbols=symbols, regions=(Region(RegionKind.IO, 1 << 20),), tensors=tensors)


def test_sizes_are_those_of_the_inputs() -> None:
    assert sizes_of(table(), {"ids": (4, 5), "x": (4, 3, 10)}) == {"T": 4, "B": 5}


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"ids": (4, 5)}, "missing: x; unknown: none"),
        ({"ids": (4, 5), "x": (4, 3, 10), "z": (1,)}, "missing: none; unknown: z"),
        ({"ids": (4, 5), "x": (4, 3)}, "input x has 2 dimensions"),
        ({"ids": (4, 5), "x": (4, 2, 10)}, r"input x has shape \[4, 2, 10\]"),
        ({"ids": (4, 5), "x": (3, 3, 10)}, r"it must be \[4, 3, 10\]"),
        ({"ids": (4, 5), "x": (4, 3, 11)}, r"it must be \[4, 3, 10\]"),
    ],
)
def test_other_inputs_are_refused_by_name(shapes: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        sizes_of(table(), shapes)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"T": 9, "B": 5}, "dimension 0 of ids is 9: the artifact serves 1 to 8"),
        ({"T": 8, "B": 1}, "dimension 1 of ids is 1: the artifact serves 2 to 16"),
    ],
)
def test_sizes_that_were_not_declared_are_refused(sizes: Any, said: str) -> None:
    check_ranges(table(), {"T": 8, "B": 16})
    with pytest.raises(UsageError, match=said):
        check_ranges(table(), sizes)


def placed(dtype: str, value: Any, size: int) -> Any:
    """The bytes that an input becomes."""
    data = np.empty(size, np.uint8)
    host_values.place("x", dtype, value, data.ctypes.data)
    return data


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool"])
def test_a_tensor_comes_back_as_it_was(dtype: str) -> None:
    kind = getattr(torch, dtype)
    value = (torch.arange(12).view(3, 4) - 5).to(kind).t()
    data = placed(dtype, value, value.nbytes)
    assert torch.equal(host_values.as_tensor(data, dtype, (4, 3)), value)
    one = torch.tensor(2).to(kind)
    found = host_values.as_tensor(placed(dtype, one, one.nbytes), dtype, ())
    assert torch.equal(found, one)


@pytest.mark.parametrize("rows", [5, 1 << 18])
def test_arrays_are_rounded_to_bf16_and_widened_again(rows: int) -> None:
    """The last is shared by several threads, unevenly."""
    values = np.random.default_rng(0).standard_normal((rows, 7), np.float32).T
    values[:, :2] = np.array([[np.nan], [np.inf], [-np.inf], [0], [-0.0], [1e-40], [3e38]])[:, :1]
    data = placed("bfloat16", values, 2 * values.size)
    wanted = torch.from_numpy(values.copy()).bfloat16()
    found = host_values.as_tensor(data, "bfloat16", values.shape)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    wide = np.empty(4 * values.size, np.uint8)
    move_values(data, "bfloat16", wide.ctypes.data, "float32")
    widened = host_values.as_array(wide, "float32", values.shape)
    np.testing.assert_array_equal(widened, wanted.float().numpy())


def test_whole_numbers_are_not_made_of_floats() -> None:
    data = np.zeros(8, np.uint8)
    with pytest.raises(VccError, match="a dtype that is made of the other"):
        move_values(data, "float32", np.zeros(8, np.uint8).ctypes.data, "int32")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.zeros(2, dtype=torch.float64), "input x is torch.float64 on cpu"),
        (torch.zeros(2, device="meta"), "input x is torch.float32 on meta"),
        (torch.zeros(2).to_sparse(), "input x is torch.float32 on cpu"),
        (np.zeros(2), "input x is an array of float64"),
    ],
)
def test_other_values_are_refused(value: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        host_values.place("x", "float32", value, 0)


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(UsageError, match="input x is no tensor: it is a list"):
        host_values.shape_of("x", [1, 2])
