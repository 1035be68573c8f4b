"""Products of a piece: a gemm node where it can hold them, else a launch of our kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.cuda_child import gpu_pieces, in_a_gpu_build, planned

from vcc.cache.errors import CompileError

ROWS = {"T": (1, 512)}


def work_of(
    function: Any, shapes: Any, *, rows: Any = ROWS, **parameters: tuple[int, ...]
) -> list[Any]:
    """For each step of the only piece the sizes of a product, or what a launch is called."""

    def body() -> Any:
        made = planned(gpu_pieces(function, shapes, rows, **parameters))
        return [
            [one.m, one.n, one.k] if hasattr(one, "dtype") else one.kernel.source.function
            for one in made.work
        ]

    return in_a_gpu_build(body)


def test_a_batch_and_a_product_of_sizes_that_move_are_launches() -> None:
    def scores(self: Any, x: torch.Tensor) -> torch.Tensor:
        heads = x.view(x.shape[0], 4, 16).transpose(0, 1)
        shares = (heads @ heads.transpose(1, 2)).softmax(-1)
        return (shares @ heads).transpose(0, 1).reshape(x.shape)

    def square(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x @ (x * 2).t()

    assert work_of(scores, {"x": ("T", 64)}).count("product") == 2
    assert work_of(square, {"x": ("T", 64)}).count("product") == 1


def test_a_weight_that_is_stored_transposed_is_multiplied_by_a_launch() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.b, x, self.w)

    found = work_of(forward, {"x": ("T", 64)}, w=(64, 48), b=(48,))
    assert "product" in found
    assert all(isinstance(one, str) for one in found)


def test_rows_that_lie_apart_are_copied_before_a_gemm_node() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x[:, 0], self.w)

    found = work_of(forward, {"x": ("T", 3, 64)}, w=(32, 64))
    assert [one for one in found if not isinstance(one, str)] == [["s0", 32, 64]]
    assert len(found) == 2


def test_rows_that_are_columns_are_copied_before_a_gemm_node() -> None:
    """Inductor would write the copy in the order in which it is read."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear((x * 2).t(), self.w)

    found = work_of(forward, {"x": (64, 48)}, rows={}, w=(32, 64))
    assert [one for one in found if not isinstance(one, str)] == [[48, 32, 64]]


def test_convolutions_read_and_leave_pixels_and_nothing_between_is_copied() -> None:
    """Two images of a residual block: launches for filters and sums, gemm nodes for points."""

    def block(self: Any, x: torch.Tensor) -> torch.Tensor:
        conv = torch.nn.functional.conv2d
        x = conv(x, self.first).relu()
        y = conv(x, self.taps, padding=1).relu()
        return (conv(y, self.last) + x).relu().mean((2, 3))

    sizes = {"first": (64, 64, 1, 1), "taps": (64, 64, 3, 3), "last": (64, 64, 1, 1)}
    found = work_of(block, {"x": (2, 64, 6, 6)}, rows={}, **sizes)
    gemms = [one for one in found if not isinstance(one, str)]
    launches = [one for one in found if isinstance(one, str)]
    assert gemms == [[72, 64, 64], [72, 64, 64]]
    assert launches.count("convolution") == 1
    # Image and filters laid out in one, twice what is between two convolutions, and the mean.
    assert len(launches) == 1 + 4


@pytest.mark.parametrize(("width", "copies"), [(64, 1), (128, 0)])
def test_rows_that_start_where_stored_kernels_may_not_are_copied(width: int, copies: int) -> None:
    """The second half of 2 T rows of bf16 starts at a multiple of 128 bytes, or of 256."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x[1], self.w)

    found = work_of(forward, {"x": (2, "T", width)}, w=(48, width))
    assert [one for one in found if not isinstance(one, str)] == [["s0", 48, width]]
    assert len(found) == 1 + copies


@pytest.mark.parametrize(("start", "held"), [(8, True), (4, False)])
def test_a_weight_within_another_is_multiplied_where_it_lies(start: int, held: bool) -> None:
    """By a gemm node where the table's kernel may read it: 16 bytes from its start, and 8."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        part = self.w.flatten()[start : start + 48 * 64].view(48, 64)
        return torch.nn.functional.linear(x, part)

    found = work_of(forward, {"x": ("T", 64)}, w=(49, 64))
    assert any(not isinstance(one, str) for one in found) == held


def test_a_product_over_one_element_is_no_product() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return (self.w[:, None] @ x[None, :]).cos()

    assert "product" not in work_of(forward, {"x": ("T",)}, w=(8,))


def test_a_convolution_is_a_gemm_node_and_a_transposed_one_is_refused() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(x, self.w, stride=4)

    def back(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv_transpose2d(x, self.w)

    shapes = {"x": ("T", 3, 16, 16)}
    found = work_of(forward, shapes, w=(32, 3, 4, 4))
    assert [one for one in found if not isinstance(one, str)] == [[["*", 16, "s0"], 32, 48]]

    def body() -> Any:
        with pytest.raises(CompileError, match=r"cannot express aten\.convolution"):
            planned(gpu_pieces(back, shapes, ROWS, w=(3, 8, 2, 2)))
        return True

    assert in_a_gpu_build(body)
