"""A launch of one of vcc's own Triton kernels, before it is compiled or placed in a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.table.types import When
from vcc.engine.torch_shim.profiles import DeviceProfile
from vcc.engine.torch_shim.triton_build import CompiledKernel, compile_kernel

POINTER_TYPES: Mapping[str, str] = {
    "bfloat16": "*bf16",
    "float16": "*fp16",
    "float32": "*fp32",
    "float8_e4m3fn": "*fp8e4nv",
    "int32": "*i32",
    "int64": "*i64",
}
"""Triton's name of a pointer to an element type."""

BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4, "int32": 4, "int64": 8}
"""Bytes of an element."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What launches depend on besides an operator's own arguments.

    Args:
        dtype: element type of the model.
        profile: the device to compile for.
        block_size: tokens of a KV block.
        table_width: entries of a sequence's block table (N).
        vocab: logits of a row; for sampling only.
        csrc: operators whose kernel of `csrc/kernels` is taken, where there is one of Triton too.
    """

    dtype: str
    profile: DeviceProfile
    block_size: int
    table_width: int
    vocab: int = 0
    csrc: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Shape and strides of a tensor argument, in elements.

    Args:
        shape: sizes; expressions where they depend on the step.
        stride: elements between neighbours of each dimension; empty for a dense tensor.
        dtype: element type; empty where it is the model's.
    """

    shape: tuple[Expr, ...]
    stride: tuple[Expr, ...] = ()
    dtype: str = ""

    @property
    def width(self) -> int:
        """Size of the last dimension."""
        return int(self.shape[-1])

    @property
    def row_stride(self) -> int:
        """Elements between rows of a matrix."""
        return int(self.stride[0]) if self.stride else self.width


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One specialisation of a kernel.

    Args:
        function: the `triton.jit` function.
        parameters: run-time parameters in launch order, (name, Triton type).
        constants: values of the constexpr parameters.
        aligned: parameters that are always multiples of 16.
        num_warps, num_stages: Triton's options.
    """

    function: Any
    parameters: tuple[tuple[str, str], ...]
    constants: Mapping[str, Any]
    aligned: frozenset[str]
    num_warps: int = 4
    num_stages: int = 3

    def key(self) -> tuple[Any, ...]:
        """A hashable value: equal for specs that compile to the same cubin."""
        name = (self.function.fn.__module__, self.function.fn.__name__)
        constants = tuple(sorted(self.constants.items()))
        options = (tuple(sorted(self.aligned)), self.num_warps, self.num_stages)
        return (*name, self.parameters, constants, *options)

    def compile(self, profile: DeviceProfile) -> CompiledKernel:
        """The cubin for a device.

        Raises:
            CompileError: Triton refuses it.
        """
        return compile_kernel(
            self.function,
            dict(self.parameters),
            self.constants,
            self.aligned,
            profile,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
        )


@dataclass(frozen=True, slots=True)
class Workspace:
    """Scratch memory for the time of one operator.

    Args:
        name: what launches call it.
        dtype: element type.
        shape: sizes as expressions.
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class OpLaunch:
    """One kernel launch.

    Args:
        kernel: what is launched: to be compiled, or of `csrc/kernels`, which is.
        grid: programs along x, y, z.
        arguments: a value for each parameter by name: for a pointer the name of an argument of the
            operator or of a workspace; for an integer an expression.
        access: READ and WRITE bits of the pointer parameters.
        when: the steps that run it.
    """

    kernel: KernelSpec | CompiledKernel
    grid: tuple[Expr, Expr, Expr]
    arguments: Mapping[str, Expr]
    access: Mapping[str, int]
    when: When = When.ALWAYS


@dataclass(frozen=True, slots=True)
class Launches:
    """What an operator becomes: launches in order, and the scratch memory they share."""

    launches: tuple[OpLaunch, ...]
    workspaces: tuple[Workspace, ...] = field(default=())
