"""Matrix products as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vcc.engine.graphs.table.layout import FP8


@dataclass(frozen=True, slots=True, order=True)
class GemmShape:
    """d[m,n] = a[m,k] @ w[n,k]^T (+ c[m,n]), all of one dtype.

    Scaled ones have fp8 values in a and w, and c[n] and d in `out`: `table.types.Gemm`.
    """

    m: int
    n: int
    k: int
    dtype: str
    has_c: bool = False
    out: str = ""
    scales: str = ""

    def __str__(self) -> str:
        scaled = f" by {self.scales} into {self.out}" if self.scales else ""
        return f"{self.m}x{self.n}x{self.k} {self.dtype}{scaled}{' + c' if self.has_c else ''}"


UNSTORABLE: Mapping[str, str] = {
    "blocks": "cuBLASLt reads scales of blocks of activations in another order than they are"
    " written here",
    "mixed": "cuBLASLt has no product of one scale for all activations and one for each row of the"
    " weight",
}
"""Scales of products that the store does not hold, and why; the artifact's kernels compute them."""

FP8_MULTIPLE = 16
"""Of n and k of a scaled product of cuBLASLt."""


def why_not(n: int, k: int, dtype: str, has_c: bool, out: str, scales: str) -> str:
    """Why the store cannot hold a product of this family; empty where it can."""
    if scales in UNSTORABLE:
        return UNSTORABLE[scales]
    if dtype != FP8:
        return ""
    if n % FP8_MULTIPLE or k % FP8_MULTIPLE:
        return f"cuBLASLt multiplies fp8 where n and k are multiples of {FP8_MULTIPLE}"
    if has_c and out == "float32":
        return "cuBLASLt adds no bias of float32 to a product of fp8"
    return ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A product that cannot be stored, and why."""

    shape: GemmShape
    why: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One product both ways, in nanoseconds; -1 where a way does not exist."""

    shape: GemmShape
    route: str
    stored_ns: int
    variant_ns: int
