"""A golden's arguments as bytes for a device: those of `drawn.draw_arguments`, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.golden import Argument, Array, draw, draw_integers

Raw = npt.NDArray[Any]


def bf16(values: Array) -> npt.NDArray[np.uint16]:
    """fp32 rounded to the nearest bf16, ties to even, as bits; for finite values."""
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.asarray((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16), dtype=np.uint16)


def _as(dtype: str) -> Callable[[Raw], Raw]:
    return lambda values: values.astype(dtype)


FLOATS: Mapping[str, Callable[[Array], Raw]] = {
    "float64": _as("<f8"),
    "float32": _as("<f4"),
    "float16": _as("<f2"),
    "bfloat16": bf16,
}
INTEGERS: Mapping[str, Callable[[Raw], Raw]] = {
    "int64": _as("<i8"),
    "int32": _as("<i4"),
    "int16": _as("<i2"),
    "int8": _as("i1"),
    "uint8": _as("u1"),
    "bool": _as("?"),
}
DRAWABLE = FLOATS.keys() | INTEGERS.keys()
"""Dtypes that can be drawn without torch."""


def draw_bytes(name: str, index: int, one: Argument, below: int) -> npt.NDArray[np.uint8]:
    """Argument `index` of the piece called `name`, dense.

    Args:
        name: the piece's id.
        index: the argument's place.
        one: its geometry.
        below: integers are drawn in [0, below).

    Raises:
        IntegrityError: a dtype that cannot be drawn.
    """
    if one.dtype not in DRAWABLE:
        raise IntegrityError("golden refused", f"{one.dtype} cannot be drawn here")
    if one.dtype in FLOATS:
        block = FLOATS[one.dtype](draw(name, index, one))
    else:
        block = INTEGERS[one.dtype](draw_integers(name, index, one, below))
    return np.resize(block, prod(one.shape)).view(np.uint8)


WIDENED: Mapping[str, str] = {
    **{name: name for name in ("float64", "float32", "float16", *INTEGERS)},
    "bfloat16": "uint16",
}
"""numpy's dtype of the elements of each drawable one."""


def widened(data: npt.NDArray[np.uint8], dtype: str) -> Array:
    """Elements of a dtype as fp32."""
    found = data.view(WIDENED[dtype])
    if dtype == "bfloat16":
        found = (found.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.asarray(found, dtype=np.float32)
