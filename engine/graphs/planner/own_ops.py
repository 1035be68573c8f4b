"""Calls of `torch.ops.vcc` that stay whole inside a piece: launches of the kernels of csrc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx import Node

from vcc.engine.graphs.planner.refusal import refused
from vcc.engine.graphs.planner.types import Geometry, Launch, Placed
from vcc.engine.ops.cuda.call import CudaCall, Tensor
from vcc.engine.ops.cuda.kernel import kernel_of
from vcc.engine.ops.cuda.table import BUILDERS, cuda_call
from vcc.engine.ops.schemas import NAMESPACE
from vcc.engine.torch_shim.nodes import argument_names, call_arguments, overload_name

ACCESS: Mapping[bool, str] = {False: "r", True: "w"}


def own_op(target: Any) -> str:
    """The operator's name in `torch.ops.vcc`, if it has a kernel of csrc; else empty."""
    space, _, name = (overload_name(target) or "").partition("::")
    name = name.partition(".")[0]
    return name if space == NAMESPACE and name in BUILDERS else ""


def own_call(node: Node, tensors: Mapping[str, Placed], where: str) -> CudaCall:
    """The launch of a call.

    Args:
        node: calls an operator that `own_op` names.
        tensors: every tensor of the piece so far.
        where: the piece, for errors.

    Raises:
        CompileError: its kernels do not take this call, or an argument is none that a table holds.
    """
    target: Any = node.target
    given, numbers = {}, {}
    for name, value in zip(argument_names(target), call_arguments(node), strict=True):
        if isinstance(value, Node) and value.name in tensors:
            geometry = tensors[value.name].geometry
            given[name] = Tensor(geometry.dtype, geometry.shape, geometry.stride)
        elif isinstance(value, (bool, int, float)):
            numbers[name] = value
        elif value is not None:  # an optional tensor that is not there
            raise refused(where, f"vcc::{own_op(target)}", f"its argument {name} is {value!r:.40}")
    return cuda_call(own_op(target), given, numbers)


def own_launch(node: Node, call: CudaCall, arch: str) -> tuple[Launch, dict[str, Geometry]]:
    """A call as work of a piece, and its results: tensors in memory of their own, by name.

    Args:
        node: the call; results are named after it.
        call: of `own_call`.
        arch: the target.
    """
    results = {one.name: f"{node.name}.{at}" for at, one in enumerate(call.results)}
    names = arguments_of(node) | results
    arguments = {
        one.name: names[str(one.value)] if one.kind.startswith("*") else one.value
        for one in call.parameters
    }
    access = {one.name: ACCESS[one.written] for one in call.parameters if one.kind.startswith("*")}
    geometries = {
        results[one.name]: Geometry(one.dtype, one.shape, one.stride) for one in call.results
    }
    grid = (call.blocks, 1, 1)
    return Launch(kernel_of(call, arch), grid, arguments, access), geometries


def arguments_of(node: Node) -> dict[str, str]:
    """Names of the tensors that a call is given, by the operator's argument names."""
    pairs = zip(argument_names(node.target), call_arguments(node), strict=True)
    return {name: value.name for name, value in pairs if isinstance(value, Node)}
