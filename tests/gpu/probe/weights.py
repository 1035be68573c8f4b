"""Weights for a table without torch: bindings evaluated with numpy, bf16 as 16-bit integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from table import Refused, Table

from vcc.engine.models.expressions import Binding, Cat, FromTensor, Rows, Stack, Tied, parse
from vcc.engine.models.tensor_info import TensorInfo

NUMPY = {"bfloat16": np.uint16, "float16": np.uint16, "float32": np.float32}

Array = npt.NDArray[Any]


def parameters(table: Table, tensors: Mapping[str, TensorInfo]) -> tuple[dict[str, Array], ...]:
    """Every weight of the table by its value's name, and the parameter that each stands for.

    Returns:
        (arrays by parameter name, {value name: parameter name}). Tied parameters are one array.

    Raises:
        Refused: a dtype or a shape that is not the table's.
    """
    arrays: dict[str, Array] = {}
    names: dict[str, Any] = {}
    for value in table.values:
        if value.role != "weight":
            continue
        owner = _owner(table, value.target)
        if owner not in arrays:
            arrays[owner] = _evaluate(parse(table.bindings[owner]), tensors)
        if list(arrays[owner].shape) != value.shape:
            raise Refused(f"{value.target} is {arrays[owner].shape}, the table takes {value.shape}")
        if arrays[owner].dtype != NUMPY[value.dtype]:
            raise Refused(f"{value.target} is not stored as {value.dtype}")
        names[value.name] = owner
    return arrays, names


def _owner(table: Table, parameter: str) -> str:
    binding = parse(table.bindings[parameter])
    return _owner(table, binding.name) if isinstance(binding, Tied) else parameter


def _evaluate(binding: Binding, tensors: Mapping[str, TensorInfo]) -> Array:
    if isinstance(binding, FromTensor):
        return _mapped(tensors[binding.name])
    if isinstance(binding, Rows):
        return _evaluate(binding.source, tensors)[binding.start : binding.stop]
    if isinstance(binding, Cat):
        return np.concatenate([_evaluate(part, tensors) for part in binding.parts])
    if isinstance(binding, Stack):
        return np.stack([_evaluate(part, tensors) for part in binding.parts])
    raise Refused(f"binding {binding} is not supported by the probe")


def _mapped(info: TensorInfo) -> Array:
    if info.file is None or info.dtype not in NUMPY:
        raise Refused(f"no file, or dtype {info.dtype}, behind a weight")
    kind: Any = NUMPY[info.dtype]
    return np.memmap(info.file, kind, "r", info.start, tuple(info.shape))
