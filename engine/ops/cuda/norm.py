"""Launches of the norms, with and without quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.engine.ops.cuda.call import (
    FP8,
    POINTERS,
    CudaCall,
    Parameter,
    Result,
    Tensor,
    check_alike,
    check_dense,
    refused,
    row_stride,
    short_type,
)
from vcc.engine.ops.cuda.rows import MOST_WIDTH, row_shape

BLOCK = 128
"""Values that share a scale where it is not the row."""


def norm_call(op: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> CudaCall:
    """`rms_norm` and its kin: whether there is a residual or a scale is told by the arguments.

    Raises:
        CompileError: a layout, type or width that the kernels do not take.
    """
    x, added, dynamic = tensors["x"], "residual" in tensors, op.endswith("_dynamic")
    quantised = "_quant" in op
    _check(op, tensors)
    shape = row_shape(x.width, x.dtype)
    results = _results(op, x, added, quantised, numbers)
    own = POINTERS[x.dtype]
    inputs = [("x", own), *([("residual", own)] if added else []), ("weight", own)]
    if "scale" in tensors:
        inputs.append(("scale", "*fp32"))
    return CudaCall(
        op,
        _symbol(op, x, shape.wide, numbers if dynamic else {}),
        shape.blocks(x.rows),
        shape.threads,
        (
            *(Parameter(name, kind, name) for name, kind in inputs),
            *(Parameter(one.name, POINTERS[one.dtype], one.name, True) for one in results),
            Parameter("rows", "i32", x.rows),
            Parameter("width", "i32", x.width),
            Parameter("row_threads", "i32", shape.row_threads),
            *_strides(op, tensors),
            Parameter("eps", "fp32", float(numbers["eps"])),
            Parameter("weight_offset", "fp32", float(numbers["weight_offset"])),
            *([Parameter("least", "fp32", float(numbers["least"]))] if dynamic else []),
        ),
        results,
    )


def _check(op: str, tensors: Mapping[str, Tensor]) -> None:
    x, weight = tensors["x"], tensors["weight"]
    others = [name for name in ("residual", "weight") if name in tensors]
    check_alike(op, tensors, "x", *others)
    check_dense(op, weight, "weight")
    if x.width > MOST_WIDTH:
        raise refused(op, f"rows have {x.width} values; kernels take {MOST_WIDTH} at most")
    check_scale(op, tensors)


def check_scale(op: str, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a given scale that is not one fp32 number.

    Raises:
        CompileError: it is not.
    """
    scale = tensors.get("scale")
    if scale is not None and (scale.dtype != "float32" or any(n != 1 for n in scale.shape)):
        raise refused(op, f"scale is {scale.dtype} {list(scale.shape)}, not one fp32 number")


def form(op: str, width: int, numbers: Mapping[str, Any]) -> str:
    """`row` or `block`: what shares a scale.

    Raises:
        CompileError: blocks of another size, or that do not divide the row.
    """
    size = int(numbers["block_size"])
    if size in (0, width):
        return "row"
    if size != BLOCK or width % BLOCK:
        raise refused(op, f"blocks of {size} of {width} values; kernels take {BLOCK} or the row")
    return "block"


def scales_of(x: Tensor, width: int, numbers: Mapping[str, Any]) -> Result:
    """The scales of a quantisation by row or block; those of a block of all rows lie together."""
    size = int(numbers["block_size"])
    shape = (*x.shape[:-1], width // size if size else 1)
    return Result("scales", "float32", shape, last_first=shape[-1] != 1)


def _symbol(op: str, x: Tensor, wide: bool, numbers: Mapping[str, Any]) -> str:
    base = op.removesuffix("_dynamic")
    middle = f"_{form(op, x.width, numbers)}" if numbers else ""
    return f"vcc_{base}{middle}_{'wide_' if wide else ''}{short_type(op, x, 'x')}"


def _results(
    op: str, x: Tensor, added: bool, quantised: bool, numbers: Mapping[str, Any]
) -> tuple[Result, ...]:
    found = [Result("out", FP8 if quantised else x.dtype, x.shape)]
    if op.endswith("_dynamic"):
        found.append(scales_of(x, x.width, numbers))
    if added:
        found.append(Result("total", x.dtype, x.shape))
    return tuple(found)


def _strides(op: str, tensors: Mapping[str, Tensor]) -> list[Parameter]:
    names = [name for name in ("x", "residual") if name in tensors]
    return [Parameter(f"{n}_stride", "i64", row_stride(op, tensors[n], n)) for n in names]
