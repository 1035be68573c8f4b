"""Products that no gemm node holds become launches of a kernel of ours, before Inductor sees them.

Inductor calls a library for every product. A table has gemm nodes for rows times one weight [n, k]
of known sizes; batches of products, and products of two matrices whose sizes move, are launches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from vcc.engine.graphs.planner.convolutions import (
    by_pixels,
    convolved,
    convolved_pixels,
    convolves,
    pixel_strides,
)
from vcc.engine.graphs.planner.layouts import follow_layouts
from vcc.engine.graphs.planner.types import ALIGNMENT
from vcc.engine.graphs.planner.widened import carry_fp32, reads_in_fp32
from vcc.engine.graphs.table.layout import STORED_ALIGNMENT
from vcc.engine.ops.triton.wrapped_product import batched, single
from vcc.engine.passes.rewrite import call, fake_value
from vcc.engine.torch_shim.fake import expression
from vcc.engine.torch_shim.inline import inline, traced_call
from vcc.engine.torch_shim.strides import laying

aten = torch.ops.aten


def place_products(
    graph: Graph, turned: Collection[Node] = (), wide: Collection[Node] = ()
) -> None:
    """Write the products of a graph that a gemm node cannot hold as launches, in place.

    Args:
        graph: Inductor's, after its own passes; nodes have fake values.
        turned: filters whose memory is channels last; see `planner.filters`.
        wide: products that give fp32; see `planner.biased`.
    """
    known = set(graph.nodes)
    for node in list(graph.nodes):
        if convolves(node) and by_pixels(node):
            _lay_pixels(node)
            _replace(node, partial(convolved_pixels, turned=node.args[1] in turned))
        elif convolves(node):
            _replace(node, convolved)
        elif node.target in PRODUCTS and held(node) and node not in wide:
            _lay_out(node)
        elif node.target in PRODUCTS:
            _launch(node)
    follow_layouts(graph, known)
    graph.lint()


def _lay_pixels(node: Node) -> None:
    """The image of a convolution holds channels side by side, for everybody who reads it here."""
    image: Any = node.args[0]
    if image.target is laying():
        return
    strides = pixel_strides(image.meta["val"].shape)
    first = next(one for one in node.graph.nodes if one in image.users)
    lying = call(first, laying(), image, strides)
    image.replace_all_uses_with(lying, lambda user: user is not lying and user.op != "output")


def _launch(node: Node) -> None:
    """A product in its own type, or in fp32 where that is all that is read of it."""
    between = reads_in_fp32(node)
    dtype = torch.float32 if between else node.meta["val"].dtype
    _replace(node, partial(PRODUCTS[node.target], dtype=dtype))
    carry_fp32(between)


def _replace(node: Node, function: Callable[..., Tensor]) -> None:
    given: Any = node.kwargs
    traced = traced_call(lambda *arguments: function(*arguments, **given), node)
    inline(node, traced, fake_value)


def added(
    addend: Tensor, a: Tensor, b: Tensor, *, dtype: torch.dtype, beta: float = 1, alpha: float = 1
) -> Tensor:
    """As `torch.addmm`."""
    return addend * beta + single(a, b, dtype=dtype) * alpha


def outer(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A product over one element is no sum: every element of one side times one of the other."""

    def multiplied(a: Tensor, b: Tensor, *, dtype: torch.dtype) -> Tensor:
        if _is(a.shape[-1], 1):
            return _converted(a, dtype) * _converted(b, dtype)
        return function(a, b, dtype=dtype)

    return multiplied


def _converted(value: Tensor, dtype: torch.dtype) -> Tensor:
    # Not Tensor.to: Inductor decomposes what that traces, and has done so when this is called.
    return value if value.dtype is dtype else torch.ops.prims.convert_element_type(value, dtype)


PRODUCTS: Mapping[Any, Callable[..., Tensor]] = {
    aten.bmm.default: outer(batched),
    aten.mm.default: outer(single),
    aten.addmm.default: added,
}
"""What computes a call in a `dtype` of the result."""


def held(node: Node) -> bool:
    """Whether a gemm node can compute it: the right side is a dense [n, k] of known sizes.

    It starts where a kernel of ours may read it. Where cuBLASLt's may not, a player takes ours.
    """
    if node.target is aten.bmm.default:
        return False
    right: Any = node.args[-1]
    sizes = right.meta["val"].shape
    known = all(isinstance(size, int) for size in sizes)
    return known and is_dense(right.meta["val"].t()) and starts_at(right.meta["val"], ALIGNMENT)


def _lay_out(node: Node) -> None:
    """Rows that lie apart, such as the first token of each text, are copied together.

    And so are those that start where cuBLASLt's kernels of the GEMM store may not.
    """
    left: Any = node.args[-2]
    if not is_dense(left.meta["val"]) or not starts_at(left.meta["val"], STORED_ALIGNMENT):
        copied = call(node, aten.clone.default, left, memory_format=torch.contiguous_format)
        lying = call(node, laying(), copied, [left.meta["val"].shape[1], 1])
        node.replace_input_with(left, lying)


def starts_at(value: Any, alignment: int) -> bool:
    """Whether a tensor starts a multiple of so many bytes behind its memory, at every size."""
    start = expression(value.storage_offset()) * value.element_size()
    return bool(start % alignment == 0)


def is_dense(value: Any) -> bool:
    """Whether a tensor is row-major without gaps at every size; adds no guard."""
    step: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if _is(size, 1):
            continue
        if expression(stride) != step:
            return False
        step = step * expression(size)
    return True


def _is(size: Any, number: int) -> bool:
    """Whether a size is this number at every step."""
    return isinstance(size, int) and size == number
