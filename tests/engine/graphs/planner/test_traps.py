"""What goes wrong without an error where a plan is bound by position: each trap, shut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support import user_kernels
from support.cuda_child import gpu_pieces, in_a_gpu_build, planned
from torch.library import wrap_triton

from vcc.cache.errors import CompileError

ROWS = {"T": (1, 4096)}
WIDTH = 96


def launches(function: Any, shape: tuple[Any, ...] = ("T", WIDTH), **options: Any) -> list[Any]:
    """(function, grid, arguments, kinds, access) of the launches of a piece; for a child."""
    work = planned(gpu_pieces(function, {"x": shape}, ROWS), **options).work
    return [
        [w.kernel.function, w.grid, dict(w.arguments), dict(w.kernel.parameters), dict(w.access)]
        for w in work
    ]


def elements(x: torch.Tensor) -> Any:
    return x.shape[0] * x.shape[1]


def test_a_constexpr_before_a_run_time_argument_shifts_nothing() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel = wrap_triton(user_kernels.constexpr_first)
        kernel[(x.shape[0],)](x, 3, out, elements(x), BLOCK=128)
        return out

    ((_, grid, given, kinds, access),) = in_a_gpu_build(lambda: launches(forward))
    assert grid == ["s0", 1, 1]
    assert list(kinds) == ["x", "out", "n"]
    assert given["n"] == ["*", WIDTH, "s0"]
    assert given["x"] != given["out"]
    assert access == {"x": "r", "out": "rw"}


def test_a_constexpr_outside_the_configurations_leaves_the_grid_alone() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel = wrap_triton(user_kernels.constexpr_outside)
        kernel[lambda meta: (-(-WIDTH // meta["BLOCK"]), x.shape[0])](
            x, out, x.shape[0], WIDTH=WIDTH
        )
        return out

    ((_, grid, given, kinds, _),) = in_a_gpu_build(lambda: launches(forward))
    assert (grid, given["n"]) == ([2, "s0", 1], "s0")  # of the first configuration
    assert list(kinds) == ["x", "out", "n"]


def test_a_float_is_bound_as_a_number_of_its_type() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel = wrap_triton(user_kernels.with_float)
        kernel[(x.shape[0],)](x, out, elements(x), 1e-5, BLOCK=128)
        return out

    ((_, _, given, kinds, _),) = in_a_gpu_build(lambda: launches(forward))
    assert given["eps"] == 1e-5
    assert kinds["eps"] in ("fp32", "fp64")


def test_none_is_compiled_in_and_no_parameter() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel = wrap_triton(user_kernels.with_optional)
        kernel[(x.shape[0],)](x, None, out, elements(x), BLOCK=128)
        return out

    ((_, _, given, kinds, _),) = in_a_gpu_build(lambda: launches(forward))
    assert list(kinds) == ["x", "out", "n"]
    assert given["n"] == ["*", WIDTH, "s0"]


def test_a_view_is_its_memory_and_an_offset() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        y = torch.nn.functional.linear(x, self.w)
        out = torch.empty_like(x)
        kernel = wrap_triton(user_kernels.with_float)
        kernel[(1,)](y[:, 32:], out, WIDTH, 0.5, BLOCK=128)
        return out, y

    def body() -> Any:
        made = planned(gpu_pieces(forward, {"x": ("T", WIDTH)}, ROWS, w=(WIDTH, WIDTH)))
        view = made.tensors[made.work[-1].arguments["x"]]
        return [view.base in made.buffers, view.geometry.offset]

    assert in_a_gpu_build(body) == [True, 32]


def test_a_write_into_what_a_piece_is_given_is_refused_by_name() -> None:
    """Functionalised, it would copy the whole of it, such as a stacked cache for one layer."""
    from vcc.engine.graphs.planner.join import join
    from vcc.engine.ops.triton.registry import Facts

    def forward(self: Any, x: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        kv[1].add_(x)
        return x + 1

    def body() -> None:
        from support.cuda_child import SM_90

        pieces = gpu_pieces(forward, {"x": ("T", WIDTH), "kv": (2, "T", WIDTH)}, ROWS)
        made = planned(pieces)
        with pytest.raises(CompileError, match="the write into kv"):
            join(pieces, {made.id: made}, Facts("bfloat16", SM_90, 16, 32))

    in_a_gpu_build(body)


def test_a_kernels_parameter_block_ends_with_two_null_pointers() -> None:
    def body() -> Any:
        made = planned(gpu_pieces(lambda self, x: x * 2, {"x": ("T", WIDTH)}, ROWS))
        kernel = made.work[0].kernel
        return [list(kernel.offsets().values()), kernel.param_bytes]

    offsets, size = in_a_gpu_build(body)
    assert offsets == [0, 8, 16]
    assert size == 24 + 16  # the number is 4 bytes, pointers start at multiples of 8


def test_indices_are_as_wide_as_the_largest_size_needs() -> None:
    def body() -> Any:
        found = []
        for most in (1 << 12, 1 << 20):
            pieces = gpu_pieces(lambda self, x: x * 2, {"x": ("T", 4096)}, {"T": (1, most)})
            found.append(dict(planned(pieces).work[0].kernel.parameters)["xnumel"])
        return found

    assert in_a_gpu_build(body) == ["i32", "i64"]


def test_a_size_without_a_maximum_is_refused() -> None:
    def body() -> None:
        pieces = gpu_pieces(lambda self, x: x * 2, {"x": ("T", WIDTH)}, ROWS)
        (piece,) = pieces.unique
        endless = replace(piece.symbols[0], high=1 << 62)
        with pytest.raises(CompileError, match="has no maximum"):
            planned(replace(pieces, unique=(replace(piece, symbols=(endless,)),)))

    in_a_gpu_build(body)


def test_rows_that_start_off_a_multiple_of_16_bytes_get_memory_of_their_own() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        y = x * 2
        return y[:, :32], y[:, 32:64], y[:, 65:]

    def body() -> Any:
        made = planned(gpu_pieces(forward, {"x": ("T", WIDTH)}, ROWS), strided=(0, 1, 2))
        views = [made.tensors[name] for name in made.outputs]
        return [[v.geometry.offset, v.geometry.stride] for v in views]

    assert in_a_gpu_build(body) == [[0, [WIDTH, 1]], [32, [WIDTH, 1]], [0, [31, 1]]]


def test_an_operator_without_a_kernel_is_refused_by_name_with_the_recorder_as_the_hint() -> None:
    def body() -> str:
        pieces = gpu_pieces(lambda self, x: x.sort(-1).values, {"x": ("T", 8192)}, ROWS)
        with pytest.raises(CompileError) as caught:
            planned(pieces)
        return f"{caught.value} {caught.value.hint}"

    said = in_a_gpu_build(body)
    assert "aten.sort" in said
    assert "--compile none" in said
