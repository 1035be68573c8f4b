"""Dtypes in which a checkpoint may store a tensor. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping

from vcc.engine.models.quant.spec import FP8

PLAIN = ("float64", "float32", "bfloat16", "float16")

STORED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "": (PLAIN, "the config has it in 16 bits or more"),
    "fp8": ((FP8,), f"the config has it quantised, in {FP8}"),
    "scale": (PLAIN[1:], "scales are floating-point, of 32 or 16 bits"),
}
"""Kind of a tensor -> dtypes, and what is said of any other."""


def wrong_dtype(dtype: str, kind: str) -> str:
    """Why a tensor of a kind (`fp8`, `scale`, or nothing) has the wrong dtype; empty if not."""
    allowed, why = STORED[kind]
    if dtype in allowed:
        return ""
    return why if kind or "float" in dtype else "weights are floating-point"
