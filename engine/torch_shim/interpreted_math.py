"""The device library's functions that generated kernels call, for Triton's interpreter.

Inductor writes `libdevice.tanh` and `tl_math.exp`; the interpreter has no device library. What
Triton's language has under the same name is taken from there.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl


def __getattr__(name: str) -> Any:
    # Looked up at each call: the interpreter puts its own functions there while a kernel runs.
    return getattr(tl, name)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent, by an exponential that cannot overflow to NaN."""
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


def pow(x: Any, y: Any) -> Any:
    """x ** y for a positive x."""
    return tl.exp2(tl.log2(x) * y)
