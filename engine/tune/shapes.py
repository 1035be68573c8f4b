"""Matrix products and the devices they were recorded on, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vcc.cache.key import Key, cleaned

DTYPES = ("float32", "float16", "bfloat16")
"""Element types that can be recorded."""


@dataclass(frozen=True, slots=True, order=True)
class GemmShape:
    """d[m,n] = a[m,k] @ w[n,k]^T (+ c[m,n]), all of one dtype."""

    m: int
    n: int
    k: int
    dtype: str
    has_c: bool = False

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {self.dtype}{' + c' if self.has_c else ''}"


@dataclass(frozen=True, slots=True)
class Refused:
    """A product that cannot be stored, and why."""

    shape: GemmShape
    why: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """A model of GPU: what an algorithm choice of cuBLASLt depends on."""

    name: str
    sm: int
    sm_count: int

    @classmethod
    def of_info(cls, info: str | Mapping[str, Any]) -> Gpu:
        """From what the native library says about a device (JSON of `vcc_device_info`)."""
        found = json.loads(info) if isinstance(info, str) else info
        arch = str(found["arch"]).removeprefix("sm_")
        return cls(cleaned(found["name"]), int(arch), int(found["multiprocessors"]))

    @property
    def key(self) -> Key:
        """What its shelf is called after."""
        fields = {"gpu": self.name, "sm": str(self.sm), "sm_count": str(self.sm_count)}
        return Key.of(fields)

    def __str__(self) -> str:
        return self.name
