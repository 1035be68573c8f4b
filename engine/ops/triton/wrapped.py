"""Operators inside pieces as Triton kernels: tracing keeps each as one launch of the piece.

`torch.library.wrap_triton` makes a launch visible to export and Inductor; arguments are dense
tensors and compile-time numbers only (floats, None and views do not survive the trace).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops.triton.activation import gated as gated_kernel
from vcc.engine.ops.triton.activation import silu_and_mul as silu_kernel
from vcc.engine.ops.triton.norm import fused_add_rms_norm as add_norm_kernel
from vcc.engine.ops.triton.norm import rms_norm as norm_kernel
from vcc.engine.ops.triton.rotary import rotary_embedding as rotary_kernel
from vcc.engine.ops.triton.sizes import head_sizes, power_of_two

Through = Callable[[Any], Any]
"""What makes a kernel launchable: `wrap_triton`, or the identity for the interpreter."""

COLUMNS = 1024
"""Columns of a program of silu_and_mul."""

LARGE_SHARED = 160 << 10
"""Bytes of shared memory that a block of sm_80, sm_90 and sm_100 may have, at least."""


def rms_norm(
    x: Tensor,
    weight: Tensor,
    eps: float,
    weight_offset: float = 0.0,
    *,
    through: Through = torch.library.wrap_triton,
) -> Tensor:
    """As `torch.ops.vcc.rms_norm`."""
    x = x.contiguous()
    out, width = x.new_empty(x.shape), x.shape[-1]
    sizes = {"WIDTH": width, "LANES": power_of_two(width)}
    through(norm_kernel)[(rows_of(x),)](
        x, weight, out, EPS=float(eps), OFFSET=float(weight_offset), **sizes
    )
    return out


def fused_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    weight_offset: float = 0.0,
    *,
    through: Through = torch.library.wrap_triton,
) -> tuple[Tensor, Tensor]:
    """As `torch.ops.vcc.fused_add_rms_norm`."""
    x, residual = x.contiguous(), residual.contiguous()
    out, total, width = x.new_empty(x.shape), x.new_empty(x.shape), x.shape[-1]
    sizes = {"WIDTH": width, "LANES": power_of_two(width)}
    through(add_norm_kernel)[(rows_of(x),)](
        x, residual, weight, out, total, EPS=float(eps), OFFSET=float(weight_offset), **sizes
    )
    return out, total


def silu_and_mul(x: Tensor, *, through: Through = torch.library.wrap_triton) -> Tensor:
    """As `torch.ops.vcc.silu_and_mul`."""
    x = x.contiguous()
    width = x.shape[-1] // 2
    out = x.new_empty((*x.shape[:-1], width))
    lanes = min(COLUMNS, power_of_two(width))
    through(silu_kernel)[(rows_of(x), -(-width // lanes))](x, out, WIDTH=width, LANES=lanes)
    return out


def gelu_and_mul(
    x: Tensor, tanh: bool = False, *, through: Through = torch.library.wrap_triton
) -> Tensor:
    """As `torch.ops.vcc.gelu_and_mul`."""
    x = x.contiguous()
    width = x.shape[-1] // 2
    out = x.new_empty((*x.shape[:-1], width))
    lanes = min(COLUMNS, power_of_two(width))
    through(gated_kernel)[(rows_of(x), -(-width // lanes))](
        x, out, ACT=gelu_of(tanh), WIDTH=width, LANES=lanes
    )
    return out


def gelu_of(tanh: bool) -> int:
    """How kernels call a form of gelu: by tanh, or by the error function."""
    return 2 if tanh else 1


def rotary_embedding(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    head_dim: int,
    *,
    through: Through = torch.library.wrap_triton,
) -> tuple[Tensor, Tensor]:
    """As `torch.ops.vcc.rotary_embedding`."""
    q, k, cos, sin = (tensor.contiguous() for tensor in (q, k, cos, sin))
    q_out, k_out = q.new_empty(q.shape), k.new_empty(k.shape)
    sizes = head_sizes(q.shape[-1], k.shape[-1], cos.shape[-1], head_dim)
    through(rotary_kernel)[(q.shape[0],)](q, k, cos, sin, q_out, k_out, **sizes)
    return q_out, k_out


def rows_of(x: Tensor) -> Any:
    """Rows of the last dimension; symbolic under a trace."""
    rows: Any = 1
    for size in x.shape[:-1]:
        rows = rows * size
    return rows


OPERATORS = (
    *("rms_norm", "fused_add_rms_norm", "silu_and_mul", "gelu_and_mul", "rotary_embedding"),
)
"""Operators that are functions of this module."""


def large_shared(tensor: Tensor) -> bool:
    """Whether the tensor's device has LARGE_SHARED; in a build, the device that it is for."""
    return shared_memory(tensor) >= LARGE_SHARED


def shared_memory(tensor: Tensor) -> int:
    """Bytes that a block may have on the tensor's device; in a build, on the one that it is for."""
    if not tensor.is_cuda:
        return 0  # the interpreter
    properties: Any = torch.cuda.get_device_properties(tensor.device)
    return int(properties.shared_memory_per_block_optin)
