"""bf16 in Triton's interpreter as a device computes it.

The interpreter keeps a bf16 as the 16 bits of its pattern. It multiplies those in `tl.dot` as if
they were numbers, and cuts what is narrowed to bf16 where a device rounds to the nearest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

QUIET_NAN = np.uint16(0x7FC0)


@contextmanager
def exact_bf16() -> Iterator[None]:
    """Inside, kernels of this process multiply, widen and narrow bf16 as a device does."""
    from triton.language import bfloat16, float32
    from triton.runtime import interpreter

    module: Any = interpreter
    builder, convert = module.InterpreterBuilder, module._convert_float
    dot = builder.create_dot

    def converted(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if (source, target) == (bfloat16, float32):
            return widened(data)
        if (source, target) == (float32, bfloat16):
            return narrowed(data)
        return convert(data, source, target, rounding)

    def multiplied(self: Any, a: Any, b: Any, *others: Any) -> Any:
        wide = [
            module.TensorHandle(widened(one.data), float32) if one.dtype.scalar == bfloat16 else one
            for one in (a, b)
        ]
        return dot(self, *wide, *others)

    module._convert_float, builder.create_dot = converted, multiplied
    try:
        yield
    finally:
        module._convert_float, builder.create_dot = convert, dot


def widened(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The values of patterns of bf16, of any shape."""
    return np.left_shift(bits.astype(np.uint32), 16).view(np.float32)


def narrowed(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Patterns of bf16 for values of any shape: to the nearest, of two as near to the even one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    found = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), QUIET_NAN, found)
