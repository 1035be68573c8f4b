"""A residual that a norm would add is the addend of the product before it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.cuda_child import gpu_pieces, in_a_gpu_build, planned

from vcc.engine.ops.cuda import cubins
from vcc.engine.ops.register import load_ops

pytestmark = pytest.mark.skipif(bool(cubins.missing("sm_90")), reason=cubins.missing("sm_90"))

SHAPES = {"x": ("T", 256), "residual": ("T", 128)}
WEIGHTS: dict[str, tuple[int, ...]] = {"w": (128, 256), "g": (128,)}


def work_of(forward: Any, **shapes: tuple[Any, ...]) -> list[Any]:
    """A piece's work: of a product its addend and result, of a launch its kernel and tensors."""
    load_ops()

    def body() -> Any:
        made = planned(gpu_pieces(forward, SHAPES | shapes, {"T": (1, 512)}, **WEIGHTS))
        told: list[Any] = [
            ["product", w.c, w.d]
            if hasattr(w, "dtype")
            else [w.kernel.function, [w.arguments[name] for name in w.access]]
            for w in made.work
        ]
        return [told, list(made.arguments)]

    found: list[Any] = in_a_gpu_build(body)
    return found


def norm_added(self: Any, x: torch.Tensor, residual: torch.Tensor) -> Any:
    product = torch.nn.functional.linear(x, self.w)
    return torch.ops.vcc.fused_add_rms_norm(product, residual, self.g, 1e-5, 1.0)


def quantised(self: Any, x: torch.Tensor, residual: torch.Tensor) -> Any:
    product = torch.nn.functional.linear(x, self.w)
    return torch.ops.vcc.fused_add_rms_norm_quant_dynamic(product, residual, self.g, 1e-5)


@pytest.mark.parametrize(
    ("forward", "kernel"),
    [(norm_added, "vcc_rms_norm_bf16"), (quantised, "vcc_rms_norm_quant_row_bf16")],
)
def test_the_product_adds_and_the_norm_reads_the_sum(forward: Any, kernel: str) -> None:
    work, arguments = work_of(forward)
    (name, addend, total), (function, tensors) = work
    assert (name, function) == ("product", kernel)
    assert addend == arguments[2]  # as they are first read: x, w, residual, g
    assert tensors[0] == total


def test_a_product_that_others_read_stays_as_it_is() -> None:
    def forward(self: Any, x: torch.Tensor, residual: torch.Tensor) -> Any:
        product = torch.nn.functional.linear(x, self.w)
        normed = torch.ops.vcc.fused_add_rms_norm(product, residual, self.g, 1e-5, 1.0)
        return *normed, product

    work, _ = work_of(forward)
    assert [one[0] for one in work] == ["product", "vcc_fused_add_rms_norm_bf16"]
    assert work[0][1] is None


def test_rows_that_lie_apart_are_no_addend() -> None:
    def forward(self: Any, x: torch.Tensor, residual: torch.Tensor) -> Any:
        return norm_added(self, x, residual[:, :128])

    work, _ = work_of(forward, residual=("T", 256))
    assert [one[0] for one in work] == ["product", "vcc_fused_add_rms_norm_bf16"]
    assert work[0][1] is None


def test_what_is_no_product_is_added_by_the_norm() -> None:
    def forward(self: Any, x: torch.Tensor, residual: torch.Tensor) -> Any:
        return torch.ops.vcc.fused_add_rms_norm(x[:, :128].clone(), residual, self.g, 1e-5, 1.0)

    work, _ = work_of(forward)
    assert work[-1][0] == "vcc_fused_add_rms_norm_bf16"
