"""Convolutions as products: every window becomes a row, and the rows are multiplied by the filters.

The rows are a copy of the image that is as many times larger as windows overlap; patches that lie
beside each other, as a vision transformer cuts them, are no larger than the image itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from vcc.engine.ops.triton.wrapped_product import batched

aten = torch.ops.aten


def convolves(node: Node) -> bool:
    """Whether `convolved` computes the call: any convolution but a transposed one."""
    return node.target is aten.convolution.default and not node.args[6]


def convolved(
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """As `aten.convolution` that is not transposed: [N, C, *sizes] -> [N, O, *sizes].

    One group is a gemm node's product of all windows; several are a batch of products.
    """
    filters, dims = weight.shape[0], len(stride)
    windows = _windows(image, weight.shape[2:], stride, padding, dilation)
    count, places = windows.shape[0], windows.shape[2 : 2 + dims]
    if groups == 1:
        order = [0, *range(2, 2 + dims), 1, *range(2 + dims, 2 + 2 * dims)]
        # Of one image alone the rows may be a view with gaps, which no product reads.
        rows = windows.permute(order).reshape(-1, weight[0].numel()).contiguous()
        found = (rows @ weight.reshape(filters, -1).permute(1, 0)).reshape(count, *places, filters)
        found = found if bias is None else found + bias
        return found.permute(0, 1 + dims, *range(1, 1 + dims)).contiguous()
    found = _grouped(windows, weight, groups, dims).reshape(count, filters, *places)
    return found if bias is None else found + bias.reshape(-1, *[1] * dims)


def _windows(
    image: Tensor,
    sizes: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """Views [N, C, *places, *sizes] of the padded image."""
    if any(padding):
        edges = [edge for size in reversed(padding) for edge in (size, size)]
        image = aten.constant_pad_nd.default(image, edges, 0.0)
    every: Any = zip(sizes, stride, dilation, strict=True)
    for dim, (size, step, apart) in enumerate(every, 2):
        image = image.unfold(dim, (size - 1) * apart + 1, step)
        image = image[..., ::apart] if apart > 1 else image
    return image


def _grouped(windows: Tensor, weight: Tensor, groups: int, dims: int) -> Tensor:
    """[N * groups, filters of a group, places]: each group's filters by its channels' windows."""
    count, channels = windows.shape[0], windows.shape[1]
    parts = windows.reshape(count, groups, channels // groups, *windows.shape[2:])
    order = [0, 1, 2, *range(3 + dims, 3 + 2 * dims), *range(3, 3 + dims)]
    depth = weight[0].numel()
    right = parts.permute(order).reshape(count * groups, depth, -1)
    left = weight.reshape(1, groups, -1, depth).expand(count, -1, -1, -1)
    return batched(left.reshape(count * groups, -1, depth), right)
