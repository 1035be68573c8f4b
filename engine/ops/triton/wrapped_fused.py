"""Fused operators inside pieces as Triton kernels, in the manner of `wrapped.py`."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from vcc.engine.ops.triton.norm_linear import rms_norm_linear as norm_linear_kernel
from vcc.engine.ops.triton.quant import gated_quant, norm_quant
from vcc.engine.ops.triton.rope import qk_norm_rope as qk_norm_rope_kernel
from vcc.engine.ops.triton.sizes import head_sizes, power_of_two
from vcc.engine.ops.triton.wrapped import COLUMNS, Through, gelu_of, rows_of

FP8 = torch.float8_e4m3fn
SILU = 0
WRAP: Through = torch.library.wrap_triton


def _norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    scale: Tensor | None,
    numbers: tuple[float, float, int, float],
    through: Through,
) -> tuple[Tensor, ...]:
    """Values, scales (dynamic only), sum (with a residual only)."""
    eps, offset, block, least = numbers
    x = x.contiguous()
    given = None if residual is None else residual.contiguous()
    width = x.shape[-1]
    block = block or width
    out, groups = x.new_empty(x.shape, dtype=FP8), width // block
    total = x if given is None else x.new_empty(x.shape)
    scales = scale if scale is not None else _scales(x, groups)
    through(norm_quant)[(rows_of(x),)](
        x,
        x if given is None else given,
        weight,
        scales if scale is None else scale,
        out,
        scales,
        total,
        EPS=float(eps),
        OFFSET=float(offset),
        WIDTH=width,
        BLOCK=block,
        GROUP_LANES=power_of_two(groups),
        BLOCK_LANES=power_of_two(block),
        LEAST=float(least),
        ADD=given is not None,
        DYNAMIC=scale is None,
    )
    found = (out,) if scale is not None else (out, scales)
    return found if given is None else (*found, total)


def _scales(x: Tensor, groups: int) -> Tensor:
    """Those of a block of all rows lie together: products read them so (`wrapped_scaled`)."""
    scales = x.new_empty((groups, rows_of(x)), dtype=torch.float32).t()
    return scales if x.dim() == 2 else scales.unflatten(0, x.shape[:-1])


def rms_norm_quant(
    x: Tensor, weight: Tensor, scale: Tensor, eps: float, weight_offset: float = 0.0,
    *, through: Through = WRAP,
) -> Tensor:  # fmt: skip
    """As `torch.ops.vcc.rms_norm_quant`."""
    return _norm(x, None, weight, scale, (eps, weight_offset, 0, 0.0), through)[0]


def rms_norm_quant_dynamic(
    x: Tensor, weight: Tensor, eps: float, weight_offset: float = 0.0, block_size: int = 0,
    least: float = 0.0, *, through: Through = WRAP,
) -> tuple[Tensor, ...]:  # fmt: skip
    """As `torch.ops.vcc.rms_norm_quant_dynamic`."""
    return _norm(x, None, weight, None, (eps, weight_offset, block_size, least), through)


def fused_add_rms_norm_quant(
    x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor, eps: float,
    weight_offset: float = 0.0, *, through: Through = WRAP,
) -> tuple[Tensor, ...]:  # fmt: skip
    """As `torch.ops.vcc.fused_add_rms_norm_quant`."""
    return _norm(x, residual, weight, scale, (eps, weight_offset, 0, 0.0), through)


def fused_add_rms_norm_quant_dynamic(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, weight_offset: float = 0.0,
    block_size: int = 0, least: float = 0.0, *, through: Through = WRAP,
) -> tuple[Tensor, ...]:  # fmt: skip
    """As `torch.ops.vcc.fused_add_rms_norm_quant_dynamic`."""
    return _norm(x, residual, weight, None, (eps, weight_offset, block_size, least), through)


def _gated(
    x: Tensor, act: int, scale: Tensor | None, block: int, least: float, through: Through
) -> tuple[Tensor, ...]:
    """Values, and scales when dynamic; a static row is cut into tiles as one with blocks is."""
    x = x.contiguous()
    width = x.shape[-1] // 2
    block = block or (width if scale is None else min(width, COLUMNS))
    groups = -(-width // block)
    lanes = min(power_of_two(groups), max(1, COLUMNS // power_of_two(block)))
    out = x.new_empty((*x.shape[:-1], width), dtype=FP8)
    scales = _scales(x, groups) if scale is None else scale
    through(gated_quant)[(rows_of(x), -(-groups // lanes))](
        x,
        scales,
        out,
        scales,
        ACT=act,
        WIDTH=width,
        BLOCK=block,
        GROUP_LANES=lanes,
        BLOCK_LANES=power_of_two(block),
        LEAST=float(least),
        DYNAMIC=scale is None,
    )
    return (out,) if scale is not None else (out, scales)


def silu_and_mul_quant(x: Tensor, scale: Tensor, *, through: Through = WRAP) -> Tensor:
    """As `torch.ops.vcc.silu_and_mul_quant`."""
    return _gated(x, SILU, scale, 0, 0.0, through)[0]


def silu_and_mul_quant_dynamic(
    x: Tensor, block_size: int = 0, least: float = 0.0, *, through: Through = WRAP
) -> tuple[Tensor, ...]:
    """As `torch.ops.vcc.silu_and_mul_quant_dynamic`."""
    return _gated(x, SILU, None, block_size, least, through)


def gelu_and_mul_quant(
    x: Tensor, scale: Tensor, tanh: bool = False, *, through: Through = WRAP
) -> Tensor:
    """As `torch.ops.vcc.gelu_and_mul_quant`."""
    return _gated(x, gelu_of(tanh), scale, 0, 0.0, through)[0]


def gelu_and_mul_quant_dynamic(
    x: Tensor, tanh: bool = False, block_size: int = 0, least: float = 0.0,
    *, through: Through = WRAP,
) -> tuple[Tensor, ...]:  # fmt: skip
    """As `torch.ops.vcc.gelu_and_mul_quant_dynamic`."""
    return _gated(x, gelu_of(tanh), None, block_size, least, through)


def qk_norm_rope(
    q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor,
    head_dim: int, eps: float, weight_offset: float = 0.0, *, through: Through = WRAP,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `torch.ops.vcc.qk_norm_rope`."""
    q, k, cos, sin = (tensor.contiguous() for tensor in (q, k, cos, sin))
    q_out, k_out = q.new_empty(q.shape), k.new_empty(k.shape)
    sizes = head_sizes(q.shape[-1], k.shape[-1], cos.shape[-1], head_dim)
    through(qk_norm_rope_kernel)[(q.shape[0],)](
        q, k, q_weight, k_weight, cos, sin, q_out, k_out,
        EPS=float(eps), OFFSET=float(weight_offset), **sizes,
    )  # fmt: skip
    return q_out, k_out


TILES = {"TILE_ROWS": 16, "TILE_COLUMNS": 64, "TILE_WIDTH": 64}
"""Of rms_norm_linear; not tuned, as no figure has switched it on."""


def rms_norm_linear(
    x: Tensor, norm_weight: Tensor, weight: Tensor, bias: Tensor | None, eps: float,
    weight_offset: float = 0.0, *, through: Through = WRAP,
) -> Tensor:  # fmt: skip
    """As `torch.ops.vcc.rms_norm_linear`; a bias is added behind the kernel."""
    x, weight = x.contiguous(), weight.contiguous()
    columns, rows = weight.shape[0], rows_of(x)
    out: Any = x.new_empty((*x.shape[:-1], columns))
    grid = (-(-columns // TILES["TILE_COLUMNS"]), -(-rows // TILES["TILE_ROWS"]))
    through(norm_linear_kernel)[grid](
        x, norm_weight, weight, out, rows,
        EPS=float(eps), OFFSET=float(weight_offset), WIDTH=x.shape[-1], COLUMNS=columns, **TILES,
    )  # fmt: skip
    return cast(Tensor, out if bias is None else out + bias)


OPERATORS = (
    "rms_norm_quant",
    "rms_norm_quant_dynamic",
    "fused_add_rms_norm_quant",
    "fused_add_rms_norm_quant_dynamic",
    "silu_and_mul_quant",
    "silu_and_mul_quant_dynamic",
    "gelu_and_mul_quant",
    "gelu_and_mul_quant_dynamic",
    "qk_norm_rope",
    "rms_norm_linear",
)
"""Operators that are functions of this module."""
