"""What torch does wrong and the shim goes around is still there, without the shim.

A test that fails says that this torch does it right. What it names can go once the oldest torch
that is supported does so too. That behind `local_buffers` is in `test_probes_local_buffers.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import user_kernels
from support.cuda_child import SM_90, gpu_pieces, in_a_gpu_build
from torch import Tensor
from torch.library import wrap_triton

from vcc.engine.partition.canonical import fake_arguments
from vcc.engine.torch_shim import fx_wrapper

ROWS, WIDTH = {"T": (1, 4096)}, 96
GONE = f"torch {torch.__version__} binds this launch right: fx_wrapper.{{}} is for older ones alone"


def first_launch(forward: Any, given: str = "out") -> tuple[list[str], dict[str, bool]]:
    """Grid of the launch with an argument `given`, as torch binds it, and which are tensors."""

    def bound() -> Any:
        from torch._inductor.codegen.wrapper_fxir import FxConverter

        own = FxConverter._generate_triton_call
        fx_wrapper._bound_by_name = lambda tuners: own
        (piece,) = gpu_pieces(forward, {"x": ("T", WIDTH)}, ROWS).unique
        options = fx_wrapper.cuda_options({})
        made = fx_wrapper.compile_to_graph(piece.graph, fake_arguments(piece), options, SM_90)
        calls = [node for node in made.graph.graph.nodes if "kwargs" in node.kwargs]
        call = next(call for call in calls if given in call.kwargs["kwargs"])
        (grid,) = call.kwargs["grid"]
        tensors = {
            name: isinstance(getattr(value, "meta", {}).get("val"), torch.Tensor)
            for name, value in call.kwargs["kwargs"].items()
        }
        return [str(size) for size in grid], tensors

    grid, tensors = in_a_gpu_build(bound)
    return grid, tensors


def test_a_constexpr_before_a_run_time_argument_still_shifts_those_behind_it() -> None:
    """A tensor gets a number, and the grid what belongs to the kernel."""

    def forward(self: Any, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        kernel = wrap_triton(user_kernels.constexpr_first)
        kernel[(x.shape[0],)](x, 3, out, x.shape[0] * x.shape[1], BLOCK=128)
        return out

    grid, tensors = first_launch(forward)
    assert (grid[1:], tensors["out"]) != (["1", "1"], True), GONE.format("_given")
    assert tensors["x"]


def test_a_constexpr_behind_all_others_shifts_the_grid_alone() -> None:
    """So what the test above sees of tensors is the fault, not the way in which it looks."""

    def forward(self: Any, x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        kernel = wrap_triton(user_kernels.add_into)
        kernel[(x.shape[0],)](x, out, x.shape[0] * x.shape[1], BLOCK=128)
        return out

    grid, tensors = first_launch(forward, "cache")
    assert grid[1:] != ["1", "1"], GONE.format("_grid")
    assert tensors["x"]
    assert tensors["cache"]


def test_a_float_still_ends_code_generation() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        kernel = wrap_triton(user_kernels.with_float)
        kernel[(x.shape[0],)](x, out, x.shape[0] * x.shape[1], 1e-5, BLOCK=128)
        return out

    with pytest.raises(AssertionError, match="of type <class 'float'> is not a valid input"):
        first_launch(forward)
