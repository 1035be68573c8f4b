"""Matrix products as values."""

from __future__ import annotations

from dataclasses import dataclass


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
