"""Launches of the gated activations, with and without quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vcc.engine.graphs.expr import Expr
from vcc.engine.ops.cuda.call import (
    FP8,
    POINTERS,
    CudaCall,
    Parameter,
    Result,
    Tensor,
    refused,
    row_stride,
    short_type,
)
from vcc.engine.ops.cuda.norm import check_scale, form, scales_of
from vcc.engine.ops.cuda.rows import MOST_WIDTH, part_shape, row_shape


def gate_call(op: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> CudaCall:
    """`silu_and_mul`, `gelu_and_mul` and their quantised forms.

    Raises:
        CompileError: a layout, type or width that the kernels do not take.
    """
    x = tensors["x"]
    if x.width % 2:
        raise refused(op, f"x has {x.width} columns, an odd number")
    check_scale(op, tensors)
    half = replace(x, shape=(*x.shape[:-1], x.width // 2))
    if op.endswith("_dynamic"):
        return _dynamic(op, x, half, numbers)
    shape = part_shape(half.width, x.dtype)
    static = "scale" in tensors
    out = Result("out", FP8 if static else x.dtype, half.shape)
    parameters = (
        Parameter("x", POINTERS.get(x.dtype, ""), "x"),
        *([Parameter("scale", "*fp32", "scale")] if static else []),
        Parameter("out", POINTERS[out.dtype], "out", True),
        *_sizes(op, x, half, ("row_blocks", shape.row_blocks(x.rows))),
        *_tanh(numbers),
    )
    symbol = f"vcc_{op}_{short_type(op, x, 'x')}"
    return CudaCall(op, symbol, shape.blocks(x.rows), shape.threads, parameters, (out,))


def _dynamic(op: str, x: Tensor, half: Tensor, numbers: Mapping[str, Any]) -> CudaCall:
    kind, short = form(op, half.width, numbers), short_type(op, x, "x")
    base = f"vcc_{op.removesuffix('_dynamic')}_{kind}"
    if kind == "row":
        if half.width > MOST_WIDTH:
            raise refused(op, f"rows have {half.width} values; kernels take {MOST_WIDTH} at most")
        rows = row_shape(half.width, x.dtype, gated=True)
        symbol = f"{base}_{'wide_' if rows.wide else ''}{short}"
        blocks, threads = rows.blocks(x.rows), rows.threads
        share: tuple[str, Expr] = ("row_threads", rows.row_threads)
    else:
        parts = part_shape(half.width, x.dtype)
        symbol, blocks, threads = f"{base}_{short}", parts.blocks(x.rows), parts.threads
        share = ("row_blocks", parts.row_blocks(x.rows))
    results = (Result("out", FP8, half.shape), scales_of(x, half.width, numbers))
    parameters = (
        Parameter("x", POINTERS[x.dtype], "x"),
        *(Parameter(one.name, POINTERS[one.dtype], one.name, True) for one in results),
        *_sizes(op, x, half, share),
        Parameter("least", "fp32", float(numbers["least"])),
        *_tanh(numbers),
    )
    return CudaCall(op, symbol, blocks, threads, parameters, results)


def _sizes(op: str, x: Tensor, half: Tensor, share: tuple[str, Expr]) -> tuple[Parameter, ...]:
    return (
        Parameter("rows", "i32", x.rows),
        Parameter("width", "i32", half.width),
        Parameter(share[0], "i32", share[1]),
        Parameter("x_stride", "i64", row_stride(op, x, "x")),
    )


def _tanh(numbers: Mapping[str, Any]) -> tuple[Parameter, ...]:
    return (Parameter("tanh", "i32", int(numbers["tanh"])),) if "tanh" in numbers else ()
