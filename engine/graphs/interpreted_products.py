"""Matrix products of a node table on the CPU, summed in fp32."""

from __future__ import annotations

from typing import Any

import torch

from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.graphs.expr import Expr, evaluate_all
from vcc.engine.graphs.host_memory import HostMemory
from vcc.engine.graphs.table.layout import SCALE_BLOCK
from vcc.engine.graphs.table.types import Gemm, Node, Param

A, W, C, D, A_SCALE, W_SCALE = range(0, 48, 8)
"""Bytes of the pointers of a product."""


def multiply(gemm: Gemm, node: Node, memory: HostMemory) -> None:
    """Compute the product of a node.

    Raises:
        OutOfRegion: an operand reaches outside its region.
    """
    given = {param.offset: param for param in node.params}
    parts = {at: _operand(memory, given[at], *_described(gemm, at)) for at in given}
    parts[D].copy_(_scaled(gemm, parts) if gemm.scales else _plain(parts))


def _plain(parts: dict[int, torch.Tensor]) -> torch.Tensor:
    """a @ w.T (+ c)."""
    product = parts[A].float() @ parts[W].float().T
    return product + parts[C].float() if C in parts else product


def _scaled(gemm: Gemm, parts: dict[int, torch.Tensor]) -> torch.Tensor:
    from vcc.engine.ops.native_scaled import scaled_linear

    scales = parts[A_SCALE], parts[W_SCALE]
    return scaled_linear(parts[A], parts[W], *scales, parts.get(C), [], torch.float32)


def _described(gemm: Gemm, at: int) -> tuple[str, tuple[Expr, ...]]:
    """Element type and shape of the operand at a byte."""
    m, n, k = gemm.m, gemm.n, gemm.k
    if at in (A, W):
        return gemm.dtype, (m if at == A else n, k)
    if at in (C, D):
        row = (n,) if at == C and gemm.scales else (m, n)
        return gemm.out or gemm.dtype, row
    across, down = -(-k // SCALE_BLOCK), -(-n // SCALE_BLOCK)
    shapes: dict[str, tuple[tuple[Expr, ...], tuple[Expr, ...]]] = {
        "tensor": ((1,), (1,)),
        "rows": ((m, 1), (n,)),
        "blocks": ((m, across), (down, across)),
        "mixed": ((1,), (n,)),
    }
    return "float32", shapes[gemm.scales][at == W_SCALE]


def _operand(memory: HostMemory, param: Param, dtype: str, shape: tuple[Expr, ...]) -> torch.Tensor:
    data = memory.view(param.region, param.value, dtype, shape)
    return as_torch(data, dtype).view(evaluate_all(shape, memory.sizes))


def as_torch(data: Any, dtype: str) -> torch.Tensor:
    """Bytes of a memory as a flat tensor that shares them."""
    return torch.from_numpy(data).view(DTYPES[dtype])
