"""A piece as work: products and launches, results where they are made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.cuda_child import SM_90, gpu_pieces, in_a_gpu_build, planned

from vcc.cache.errors import CompileError
from vcc.engine.graphs.planner.pieces import compile_piece
from vcc.engine.torch_shim.fx_wrapper import cuda_options
from vcc.engine.torch_shim.profiles import PROFILES

ROWS = {"T": (1, 512)}


def products(made: Any) -> list[Any]:
    return [[w.a, w.w, w.c, w.d, w.m, w.n, w.k, w.dtype] for w in made.work if hasattr(w, "dtype")]


def test_a_product_writes_its_result_where_it_is_returned() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.w)

    def body() -> Any:
        made = planned(gpu_pieces(forward, {"x": ("T", 64)}, ROWS, w=(128, 64)))
        return [len(made.work), products(made), made.outputs, made.buffers, made.arguments]

    count, ((a, w, c, d, *sizes),), outputs, buffers, arguments = in_a_gpu_build(body)
    assert count == 1  # no copy behind it
    assert sizes == ["s0", 128, 64, "bfloat16"]
    assert outputs == [d] == buffers
    assert (c, arguments[-1]) == (None, None)
    assert a in arguments
    assert w not in buffers


def test_an_addend_becomes_part_of_its_product() -> None:
    def forward(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.w) + y

    def body() -> Any:
        made = planned(gpu_pieces(forward, {"x": ("T", 64), "y": ("T", 128)}, ROWS, w=(128, 64)))
        return [len(made.work), products(made)]

    count, ((_, _, c, d, *_),) = in_a_gpu_build(body)
    assert count == 1
    assert c is not None
    assert c != d


def test_parts_of_a_fused_product_stay_in_it_for_operators_that_take_rows() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        q, v = torch.nn.functional.linear(x, self.w).split([96, 32], dim=-1)
        return q * 2, v

    def body() -> Any:
        pieces = gpu_pieces(forward, {"x": ("T", 64)}, ROWS, w=(128, 64))
        found = []
        for strided in ((), (0,)):  # v comes first: it is made by the split itself
            made = planned(pieces, strided=strided)
            v = made.tensors[made.outputs[0]].geometry
            found.append([len(made.work), v.stride, v.offset])
        return found

    assert in_a_gpu_build(body) == [[2, [32, 1], 0], [2, [128, 1], 96]]


def test_an_output_that_is_written_again_gets_memory_of_its_own() -> None:
    def body() -> Any:
        pieces = gpu_pieces(lambda self, x: (x + 1, x + 2), {"x": ("T", 64)}, ROWS)
        made = planned(pieces, copied=(0,))
        first, second = made.outputs
        return [first in made.buffers, made.arguments[1] == first, second in made.buffers]

    assert in_a_gpu_build(body) == [False, True, True]


def test_kernels_side_by_side_are_one_launch() -> None:
    def forward(self: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.sin(), y.cos()

    def body() -> Any:
        pieces = gpu_pieces(forward, {"x": ("T", 64), "y": ("T", 48)}, ROWS)
        (work,) = planned(pieces).work
        return [work.grid[0], sorted(name for name in work.arguments if "numel" in name)]

    grid, numbers = in_a_gpu_build(body)
    assert grid[0] == "+"
    assert numbers == ["xnumel_0", "xnumel_1"]


def test_a_bias_is_added_beside_its_product() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.w, self.b)

    def body() -> Any:
        pieces = gpu_pieces(forward, {"x": ("T", 64)}, ROWS, w=(128, 64), b=(128,))
        made = planned(pieces)
        return [len(made.work), [w.c for w in made.work if hasattr(w, "dtype")]]

    assert in_a_gpu_build(body) == [2, [None]]


def test_a_size_that_is_always_one_shifts_no_argument() -> None:
    def body() -> Any:
        made = planned(gpu_pieces(lambda self, x: x.softmax(-1), {"x": (1, 64)}))
        (work,) = made.work
        return [list(work.arguments), [name for name, _ in work.kernel.parameters]]

    bound, taken = in_a_gpu_build(body)
    assert bound == taken
    assert "xnumel" not in taken


def test_operators_in_triton_stay_launches_of_their_piece_in_every_layer() -> None:
    """A launch has no result that anyone reads, and its constants a number of their own."""

    def body() -> Any:
        from support.decoders import SHAPE, spec

        from vcc.engine.config.types import DEFAULT_SPLITTING_OPS
        from vcc.engine.ops.choice import OpChoice
        from vcc.engine.ops.register import load_ops
        from vcc.engine.partition.split import split
        from vcc.engine.passes.apply import PASSES, apply
        from vcc.engine.trace.decoder import decoder_trace
        from vcc.engine.trace.trace import trace

        load_ops()
        ops = OpChoice(frozenset({"rms_norm", "silu_and_mul"}), "triton")
        with torch.device("cuda"):
            request = decoder_trace(spec("llama", 4), torch.bfloat16, ops, SHAPE)
        pieces = split(apply(trace(request), PASSES).traced, DEFAULT_SPLITTING_OPS, ())
        made = compile_piece(pieces.unique[1], SM_90, cuda_options({}), strided=(1,))
        names = [w.kernel.function for w in made.work if not hasattr(w, "dtype")]
        return [len(pieces.unique), names[:3]]

    unique, names = in_a_gpu_build(body)
    assert unique == 3
    assert names == ["fused_add_rms_norm", "silu_and_mul", "fused_add_rms_norm"]


def test_a_rotation_in_triton_returns_what_is_read_and_costs_one_launch_to_lay_rows_out() -> None:
    """q and k lie in one product's rows; the kernel takes dense ones. None of that is a result."""

    def body() -> Any:
        from support.decoders import SHAPE, spec

        from vcc.engine.config.types import DEFAULT_SPLITTING_OPS
        from vcc.engine.ops.choice import OpChoice
        from vcc.engine.ops.register import load_ops
        from vcc.engine.partition.split import split
        from vcc.engine.passes.apply import PASSES, apply
        from vcc.engine.trace.decoder import decoder_trace
        from vcc.engine.trace.trace import trace

        load_ops()
        found = []
        for names in ((), ("rotary_embedding",)):
            with torch.device("cuda"):
                choice = OpChoice(frozenset(names), "triton")
                request = decoder_trace(spec("llama", 4), torch.bfloat16, choice, SHAPE)
            pieces = split(apply(trace(request), PASSES).traced, DEFAULT_SPLITTING_OPS, ())
            seam = compile_piece(pieces.unique[1], SM_90, cuda_options({}), strided=range(9))
            found.append([len(seam.work), pieces.unique[1].outputs])
        return found

    (plain, outputs), (rotated, left) = in_a_gpu_build(body)
    assert rotated == plain + 1
    assert left == outputs  # q and k once each: as they were rotated


def test_a_scaled_product_is_refused_by_name() -> None:
    def forward(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.addmm(y, x, self.w.t(), alpha=2)

    def body() -> None:
        pieces = gpu_pieces(forward, {"x": ("T", 64), "y": ("T", 128)}, ROWS, w=(128, 64))
        with pytest.raises(CompileError, match="scaled"):
            planned(pieces)

    in_a_gpu_build(body)


@pytest.mark.parametrize("target", [name for name in PROFILES if name != "sm_90"])
def test_every_target_gets_its_own_cubins(target: str) -> None:
    def body() -> Any:
        (piece,) = gpu_pieces(lambda self, x: x.softmax(-1), {"x": ("T", 64)}, ROWS).unique
        made = compile_piece(piece, PROFILES[target], cuda_options({}))
        return [work.kernel.cubin for work in made.work]

    (cubin,) = in_a_gpu_build(body, PROFILES[target])
    assert cubin[:4] == b"\x7fELF"
    flags = int.from_bytes(cubin[0x30:0x34], "little")
    arch = PROFILES[target].arch
    assert arch in (flags & 0xFF, flags >> 8 & 0xFF)
