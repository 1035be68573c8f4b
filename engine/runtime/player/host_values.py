"""Inputs and outputs of a plain forward on the host: torch tensors or numpy arrays, as bytes.

Torch is not imported: a tensor can only come from a program that has done so. numpy has no bf16; an
array for such an input is fp32, which is rounded, and such an output is widened to fp32.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import UsageError
from vcc.engine.runtime.player.layout import NUMPY
from vcc.engine.runtime.player.values import Bytes, move_values

BF16, FP32 = "bfloat16", "float32"


def is_tensor(value: object) -> bool:
    """Whether a value is a torch tensor."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def shape_of(name: str, value: Any) -> tuple[int, ...]:
    """The sizes of an input.

    Raises:
        UsageError: it is neither a tensor nor an array.
    """
    if not is_tensor(value) and not isinstance(value, np.ndarray):
        raise UsageError(
            f"input {name} is no tensor",
            f"it is a {type(value).__name__}",
            "give a torch tensor of the CPU or a numpy array",
        )
    return tuple(int(size) for size in value.shape)


def place(name: str, dtype: str, value: Any, address: int) -> None:
    """Write the elements of an input, dense, to memory of the host that has room for them.

    Args:
        name: of the input.
        dtype: torch's name of what the artifact takes.
        value: a tensor on the CPU, or an array.
        address: where they go.

    Raises:
        UsageError: another dtype, or a tensor that is elsewhere or not dense.
    """
    if is_tensor(value):
        move_values(_tensor_bytes(name, dtype, value), dtype, address, dtype)
    else:
        given = FP32 if dtype == BF16 else dtype
        move_values(_array(name, given, dtype, value), given, address, dtype)


def _tensor_bytes(name: str, dtype: str, value: Any) -> Bytes:
    torch: Any = sys.modules["torch"]
    strided = value.layout is torch.strided
    if value.dtype != getattr(torch, dtype) or value.device.type != "cpu" or not strided:
        raise _other(name, f"{value.dtype} on {value.device}", dtype)
    from vcc.engine.tensor_bytes import tensor_bytes  # a tensor came, so torch is here

    return tensor_bytes(value)


def _array(name: str, given: str, dtype: str, value: npt.NDArray[Any]) -> Bytes:
    if value.dtype != np.dtype(NUMPY[given]):
        raise _other(name, f"an array of {value.dtype}", dtype)
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def _other(name: str, found: str, dtype: str) -> UsageError:
    also = " (an array of float32)" if dtype == BF16 else ""
    return UsageError(f"input {name} is {found}", f"the artifact takes {dtype}{also} on the CPU")


def as_tensor(data: Bytes, dtype: str, shape: tuple[int, ...]) -> Any:
    """Bytes as a torch tensor, without a copy; torch is imported already."""
    torch: Any = sys.modules["torch"]
    return torch.from_numpy(data).view(getattr(torch, dtype)).view(shape)


def as_array(data: Bytes, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Bytes of a dtype that numpy knows as an array, without a copy."""
    found: npt.NDArray[Any] = data.view(NUMPY[dtype])
    return found.reshape(shape)


def drawn(dtype: str, shape: tuple[int, ...], seed: int = 0) -> npt.NDArray[Any]:
    """An input that is made up: floats of a normal distribution, zeros for whole numbers."""
    if not dtype.startswith(("float", "bfloat")):
        return np.zeros(shape, NUMPY[dtype])
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return values if dtype == BF16 else values.astype(NUMPY[dtype])
