"""Launches of Triton kernels in a traced graph: `torch.library.wrap_triton` leaves one node each.

Such a node has no schema. It names its kernel and its constants by numbers of a table of this
process, so neither what it writes nor what it is can be read off it without that table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx import Node
from torch.fx.node import map_arg

from vcc.cache.digest import Digest


def is_triton_launch(node: Node) -> bool:
    """Whether the node launches a kernel that writes into its arguments."""
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation

    return node.target is triton_kernel_wrapper_mutation


def written_by_launch(node: Node) -> tuple[Node, ...]:
    """The arguments that a launch writes, as torch reads them out of the kernel's code.

    All of them where the graph says nothing about its values, as in an extracted piece.
    """
    from torch._higher_order_ops.triton_kernel_wrap import get_mutated_tensors

    given: Any = node.kwargs
    tensors = {n: one for n, one in given["kwargs"].items() if isinstance(one, Node)}
    if any("val" not in one.meta for one in tensors.values()):
        return tuple(tensors.values())
    values: Any = map_arg(given["kwargs"], lambda one: one.meta["val"])
    names = get_mutated_tensors(
        given["kernel_idx"], given["constant_args_idx"], values, given["tma_descriptor_metadata"]
    )
    return tuple(tensors[name] for name in dict.fromkeys(names) if name in tensors)


def launch_keywords(node: Node) -> Mapping[str, Any]:
    """The arguments of a launch with what its numbers stand for: source and constants."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    given: dict[str, Any] = dict(node.kwargs)
    kernel: Any = kernel_side_table.get_kernel(given.pop("kernel_idx"))
    constants = kernel_side_table.get_constant_args(given.pop("constant_args_idx"))
    configs = [str(config) for config in getattr(kernel, "configs", ())]
    function = getattr(kernel, "fn", kernel) if configs else kernel
    source = Digest.of(str(function.src).encode()).hex
    named = {name: repr(value) for name, value in sorted(constants.items())}
    return given | {
        "kernel": f"{function.__name__} {source}",
        "configs": configs,
        "constants": named,
    }


def launched_kernel(node: Node) -> str:
    """`module:function` of the kernel that a launch is of."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    given: Any = node.kwargs
    kernel: Any = kernel_side_table.get_kernel(given["kernel_idx"])
    while not hasattr(kernel.fn, "__code__"):  # a tuner holds the kernel, which holds a function
        kernel = kernel.fn
    return f"{kernel.fn.__module__}:{kernel.fn.__name__}"


def launch_arguments(node: Node) -> Mapping[str, Any]:
    """The arguments of a launch by name: nodes, and its constants."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    given: Any = node.kwargs
    constants = kernel_side_table.get_constant_args(given["constant_args_idx"])
    return {**constants, **given["kwargs"]}


def keep_strides(node: Node) -> None:
    """Let Inductor give a launch its tensors with the very strides of their fake values.

    Without it they are those of a launch in the program of a user only, and else in their order.
    """
    if is_triton_launch(node):
        values = map_arg(dict(node.kwargs), lambda one: one.meta["val"])
        node.meta["eager_input_vals"] = ((), values)
