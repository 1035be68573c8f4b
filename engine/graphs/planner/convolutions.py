"""Convolutions as products: of rows that are read where they lie, or of windows that are copied.

Pixels that hold their channels side by side are rows already. So the image of such a convolution is
laid out so when it is made, and its result is left so: whatever lies between two convolutions
follows in Inductor's code. Everything else is copied, window by window: a copy is as many times
larger as windows overlap; patches that lie beside each other are no larger than the image itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from vcc.engine.ops.triton.wrapped_convolution import CHANNELS, TILES, Form, convolved_places
from vcc.engine.ops.triton.wrapped_product import batched
from vcc.engine.torch_shim.strides import dense

aten = torch.ops.aten

TO_PIXELS, TO_IMAGE = (0, 2, 3, 1), (0, 3, 1, 2)
ALIGNED = 8
"""Channels of 16 bytes and more: what cuBLASLt and Triton read at once."""

WIDTH = 16
"""What the length of a copied row is a multiple of, zeros beside it, for the same reason."""


def convolves(node: Node) -> bool:
    """Whether `convolved` computes the call: any convolution but a transposed one."""
    return node.target is aten.convolution.default and not node.args[6]


def by_pixels(node: Node) -> bool:
    """Whether the image of a convolution is read where it lies, channels side by side."""
    given: Any = node.args
    image, weight = (one.meta["val"] for one in given[:2])
    _, channels, *sizes = image.shape
    known = len(sizes) == 2 and all(isinstance(size, int) for size in (channels, *sizes))
    known = known and image.element_size() in TILES
    multiple = ALIGNED if is_point(weight.shape[2:], given[4]) else CHANNELS
    return known and given[8] == 1 and channels % multiple == 0


def is_point(taps: Sequence[int], padding: Sequence[int]) -> bool:
    """Whether a convolution sees one pixel for each place."""
    return all(one == 1 for one in taps) and not any(padding)


def pixel_strides(shape: Sequence[int]) -> list[int]:
    """Strides of [N, C, H, W] whose pixels hold their channels side by side."""
    _, channels, height, width = shape
    return [channels * height * width, 1, channels * width, channels]


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
        rows = _padded(windows.permute(order).reshape(-1, weight[0].numel()))
        right = _padded(weight.reshape(filters, -1))
        found = (dense(rows) @ dense(right).permute(1, 0)).reshape(count, *places, filters)
        found = found if bias is None else found + bias
        return found.permute(0, 1 + dims, *range(1, 1 + dims)).contiguous()
    found = _grouped(windows, weight, groups, dims).reshape(count, filters, *places)
    return found if bias is None else found + bias.reshape(-1, *[1] * dims)


def convolved_pixels(
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    *_: Any,
    turned: bool = False,
) -> Tensor:
    """As `convolved` for an image of `by_pixels` with `pixel_strides`, which its result has too.

    One tap without padding is a gemm node's product, several are a launch of our kernel. The
    memory of a filter that is `turned` is [filters, *taps, channels], whatever its sizes say.
    """
    pixels = image.permute(TO_PIXELS)
    fields = (image.shape[2:], weight.shape[2:], stride, padding, dilation)
    form = Form(*(_both(one) for one in fields))
    if is_point(form.taps, padding):
        step_down, step_across = form.stride
        rows = pixels[:, ::step_down, ::step_across].reshape(-1, pixels.shape[3])
        found = dense(rows) @ weight.reshape(weight.shape[0], -1).permute(1, 0)
    else:
        filters = weight.view(_permuted(weight)) if turned else dense(weight.permute(TO_PIXELS))
        found = convolved_places(pixels, filters, form)
    found = found.reshape(image.shape[0], *form.out, weight.shape[0])
    return (found if bias is None else found + bias).permute(TO_IMAGE)


def _permuted(weight: Tensor) -> list[int]:
    return [weight.shape[dim] for dim in TO_PIXELS]


def _both(sizes: Sequence[int]) -> tuple[int, int]:
    """Sizes down and across; one stands for both."""
    return int(sizes[0]), int(sizes[-1])


def _padded(matrix: Tensor) -> Tensor:
    """Zeros behind each row, up to a multiple of WIDTH."""
    lacking = -matrix.shape[1] % WIDTH
    return aten.constant_pad_nd.default(matrix, [0, lacking], 0.0) if lacking else matrix


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
    ordered = parts.permute(order)
    if all(isinstance(size, int) for size in ordered.shape[1:]):
        ordered = dense(ordered)  # one place is a view in any order, and the image may lie by pixel
    right = ordered.reshape(count * groups, depth, -1)
    left = weight.reshape(1, groups, -1, depth).expand(count, -1, -1, -1)
    return batched(left.reshape(count * groups, -1, depth), right)
