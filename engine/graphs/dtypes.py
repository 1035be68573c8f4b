"""Element types by the names that step programs use."""

from __future__ import annotations

from collections.abc import Mapping

import torch

_NAMES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)

DTYPES: Mapping[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES}

NAMES: Mapping[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}
