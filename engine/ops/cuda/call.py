"""One launch of a kernel of `csrc/kernels`: data, with sizes as expressions. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.planner.arithmetic import dense, elements, is_dense, times

TYPES: Mapping[str, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""Element type of activations -> the suffix of its kernels."""

POINTERS: Mapping[str, str] = {
    **{name: f"*{short}" for name, short in TYPES.items()},
    "int32": "*i32",
    "float8_e4m3fn": "*fp8e4nv",
}
ITEM: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4}
CHUNK, WARP = 16, 32
FP8 = "float8_e4m3fn"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument or result: element type, sizes and strides in elements."""

    dtype: str
    shape: tuple[Expr, ...]
    stride: tuple[Expr, ...]

    @property
    def width(self) -> int:
        """Size of the last dimension, which is always known."""
        return int(self.shape[-1])

    @property
    def rows(self) -> Expr:
        """Rows of the last dimension."""
        return elements(self.shape[:-1])


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    Args:
        name: as the kernel's source has it.
        kind: a pointer such as `*bf16`, or `i32`, `i64`, `fp32`.
        value: for a pointer the name of an argument of the operator or of a result; else a number
            or an expression.
        written: whether the kernel writes through the pointer.
    """

    name: str
    kind: str
    value: Expr
    written: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """A tensor that an operator returns, and the parameter that it is written through.

    It is dense: row-major, or its last dimension comes first in memory (`last_first`).
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    last_first: bool = False

    @property
    def stride(self) -> tuple[Expr, ...]:
        """In elements."""
        if not self.last_first:
            return dense(self.shape)
        return (*dense(self.shape[:-1]), elements(self.shape[:-1]))


@dataclass(frozen=True, slots=True)
class CudaCall:
    """A call of an operator as one launch.

    Args:
        op: the operator, and the name of its cubin.
        symbol: the kernel in it.
        blocks: size of the grid, which has one dimension.
        threads: of a block.
        parameters: in launch order.
        results: what the operator returns, in order.
    """

    op: str
    symbol: str
    blocks: Expr
    threads: int
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...] = ()


def refused(op: str, why: str) -> CompileError:
    """The error for a call that its kernel does not take."""
    return CompileError(
        f"vcc::{op} has no CUDA kernel for this call",
        why,
        "take another back end for the layer: custom_ops +NAME:triton, or -NAME",
    )


def short_type(op: str, tensor: Tensor, name: str) -> str:
    """The suffix of the kernels for an activation.

    Raises:
        CompileError: no kernel for its element type.
    """
    if tensor.dtype not in TYPES:
        raise refused(op, f"{name} is {tensor.dtype}; kernels take {', '.join(TYPES)}")
    return TYPES[tensor.dtype]


def row_stride(op: str, tensor: Tensor, name: str) -> Expr:
    """Elements between the rows of a tensor seen as a matrix of its last dimension.

    Raises:
        CompileError: its last dimension is not dense, or its rows are not evenly apart.
    """
    if tensor.stride[-1] != 1 and tensor.shape[-1] != 1:
        raise refused(op, f"{name} has a stride of {tensor.stride[-1]} in its last dimension")
    if len(tensor.shape) == 1:
        return tensor.width
    for at in range(len(tensor.shape) - 2):
        even = times(tensor.shape[at + 1], tensor.stride[at + 1])
        if tensor.shape[at] != 1 and tensor.stride[at] != even:
            raise refused(op, f"{name} has strides {list(tensor.stride)}: rows not evenly apart")
    return tensor.stride[-2]


def check_dense(op: str, tensor: Tensor, name: str) -> None:
    """Refuse a tensor with gaps.

    Raises:
        CompileError: it has some.
    """
    if not is_dense(tensor.shape, tensor.stride):
        raise refused(op, f"{name} is not contiguous: sizes {list(tensor.shape)}")


def check_alike(op: str, tensors: Mapping[str, Tensor], first: str, *others: str) -> None:
    """Refuse tensors of another element type than the first.

    Raises:
        CompileError: one is.
    """
    for name in others:
        if tensors[name].dtype != tensors[first].dtype:
            raise refused(
                op, f"{name} is {tensors[name].dtype} and {first} is {tensors[first].dtype}"
            )


def chunks_of(width: int, dtype: str) -> int:
    """16-byte accesses that cover `width` elements."""
    return -(-width * ITEM[dtype] // CHUNK)


def warps(threads: int) -> int:
    """Threads rounded up to whole warps."""
    return -(-threads // WARP) * WARP
