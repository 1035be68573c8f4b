"""Gated experts with fp8 weights in plain torch: both sides become fp32, sums are rounded once.

T is the number of rows, k of experts a row, E of experts, H the width of a row, I of an expert.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu

from vcc.engine.ops.native_experts import in_blocks
from vcc.engine.ops.native_quant import quantised, quantised_dynamic
from vcc.engine.ops.native_scaled import BLOCK


def scaled_experts(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    gate_up_scale: Tensor,
    down_scale: Tensor,
    x_scale: Tensor | None,
    inner_scale: Tensor | None,
    weights: Tensor,
    ids: Tensor,
    least: float,
) -> Tensor:
    """`moe_experts` of fp8 weights: rows, and `silu(gate) * up`, are quantised on the way.

    Args:
        x: [T, H].
        gate_up: float8_e4m3fn [E, 2 * I, H], the rows of gate before those of up.
        down: float8_e4m3fn [E, H, I].
        gate_up_scale: fp32: of gate and of up [E, 2]; of each row [E, 2 * I]; or of each block
            [E, ceil(2 * I / 128), H / 128], which goes with blocks of activations.
        down_scale: fp32, in the same manner: [E, 1], [E, H] or [E, ceil(H / 128), I / 128].
        x_scale: fp32, of what goes into each expert [E]; None: made of each row, or of each
            block of 128 values of it.
        inner_scale: fp32 [E], of what goes into `down`; given or not as x_scale is.
        weights: fp32 [T, k].
        ids: int32 [T, k], each from 0 to E - 1.
        least: lower bound of the largest magnitude that a scale is made of.

    Returns:
        [T, H] in the dtype of x; sums are fp32, `silu(gate) * up` is rounded before it is
        quantised.
    """
    layer = _Layer(gate_up, down, gate_up_scale, down_scale, x_scale, inner_scale, least)
    return in_blocks(x, weights, ids, gate_up.shape[0], layer.products)


def rows_in_fp8(x: Tensor, scale: Tensor | None, blocks: bool, least: float) -> tuple[Tensor, ...]:
    """Values in fp8 and their scales.

    Args:
        x: [..., D].
        scale: given, broadcast over the last dimension; None: made of the values.
        blocks: made of 128 values each, and not of a row.
        least: as of `scaled_experts`.
    """
    if scale is not None:
        return quantised(x, scale), scale
    return quantised_dynamic(x, BLOCK if blocks else 0, least)


@dataclass(frozen=True, slots=True)
class _Layer:
    gate_up: Tensor
    down: Tensor
    gate_up_scale: Tensor
    down_scale: Tensor
    x_scale: Tensor | None
    inner_scale: Tensor | None
    least: float

    def products(self, rows: Tensor, owners: Tensor) -> Tensor:
        """fp32 results of blocks `[n, ROWS, H]` that belong to these experts."""
        left = self._rounded(rows, self.x_scale, owners)
        right = _widened(self.gate_up[owners], self.gate_up_scale[owners])
        gate, up = torch.bmm(left, right.transpose(1, 2)).chunk(2, dim=-1)
        inner = self._rounded((silu(gate) * up).to(rows.dtype), self.inner_scale, owners)
        right = _widened(self.down[owners], self.down_scale[owners])
        return torch.bmm(inner, right.transpose(1, 2))

    def _rounded(self, x: Tensor, scales: Tensor | None, owners: Tensor) -> Tensor:
        """What fp8 keeps of blocks of rows, in fp32."""
        given = None if scales is None else scales.flatten()[owners][:, None, None]
        values, scale = rows_in_fp8(x, given, self.gate_up_scale.dim() == 3, self.least)
        parts = values.float().unflatten(-1, (scale.shape[-1], -1))
        wide: Tensor = parts * scale[..., None]
        return wide.flatten(-2)


def _widened(weight: Tensor, scale: Tensor) -> Tensor:
    """fp32 weights [n, rows, columns], scales multiplied in."""
    rows = weight.shape[1]
    if scale.dim() == 2:
        return weight.float() * scale.repeat_interleave(rows // scale.shape[1], 1)[..., None]
    wide = scale.repeat_interleave(BLOCK, 1)[:, :rows].repeat_interleave(BLOCK, 2)
    return weight.float() * wide[..., : weight.shape[2]]
