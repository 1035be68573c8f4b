"""Each operator's launch: its kernel is in the cubins, its parameters are the source's, by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.cuda_cases import Case, all_cases, norm_cases
from support.host_kernels import layout
from support.sources import ROOT

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import evaluate
from vcc.engine.ops.cuda import cubins
from vcc.engine.ops.cuda.call import CudaCall, Tensor, row_stride
from vcc.engine.ops.cuda.kernel import kernel_of
from vcc.engine.ops.cuda.rows import (
    KEPT,
    KEPT_OF_WIDE_GATES,
    most_few,
    part_shape,
    row_shape,
)
from vcc.engine.ops.cuda.table import BUILDERS, cuda_call
from vcc.engine.ops.schemas import OPS
from vcc.engine.ops.surfaces import csrc

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def cases() -> Iterator[Case]:
    for dtype in DTYPES:
        yield from all_cases(dtype)


def call_of(case: Case) -> CudaCall:
    return cuda_call(case.op, {n: layout(one) for n, one in case.tensors.items()}, case.numbers)


def declared(op: str) -> list[list[str]]:
    """Parameter names of every kernel that a source defines, in order."""
    text = (ROOT / "csrc" / "kernels" / f"{op}.cu").read_text().replace("\\\n", " ")
    found = []
    for body in re.findall(
        r"VCC_KERNEL\((?:\w+|\([^)]*\)), (?:[^,]+), vcc_[\w#]+,(.*?)\)\s*\{", text
    ):
        found.append([one.split()[-1].lstrip("*") for one in body.split(",")])
    return found


def test_parameters_are_those_of_the_source_by_name() -> None:
    for case in cases():
        names = [one.name for one in call_of(case).parameters]
        sources = declared(case.op)
        shared = [["share" if n in ("row_threads", "row_blocks") else n for n in names], names]
        assert any(one in sources for one in shared), (case.op, names, sources)


def test_every_kernel_is_in_the_cubins_with_its_parameters() -> None:
    if why := cubins.missing("sm_90"):
        pytest.skip(why)
    used: dict[str, set[str]] = {}
    for case in cases():
        call = call_of(case)
        kernel = kernel_of(call, "sm_90")  # compares sizes and threads with the index
        assert kernel.warps * 32 == call.threads
        used.setdefault(case.op, set()).add(call.symbol)
    index = cubins.index("sm_90")
    assert used == {op: set(entry.symbols) for op, entry in index.cubins.items()}


def test_the_surface_names_the_same_operators() -> None:
    assert set(csrc.CUDA) == set(BUILDERS)
    assert set(BUILDERS) <= {op.name for op in OPS}


def test_a_target_without_cubins_is_refused_with_the_reason() -> None:
    call = call_of(next(norm_cases(torch.float32)))
    with pytest.raises(CompileError) as caught:
        kernel_of(call, "sm_75")
    assert "sm_75" in caught.value.why or "nvcc" in caught.value.why


@pytest.mark.parametrize("width", [1, 8, 64, 100, 512, 1024, 4096, 8192, 8193, 16384])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("gated", [False, True])
def test_the_threads_of_a_row_hold_all_of_it(width: int, dtype: str, gated: bool) -> None:
    shape = row_shape(width, dtype, gated=gated)
    values = 8 if dtype == "bfloat16" else 4
    kept = KEPT_OF_WIDE_GATES if gated and shape.wide else KEPT
    assert shape.row_threads * kept * values >= width
    assert shape.threads % 32 == 0
    narrow = 256 if dtype == "bfloat16" else 512
    assert shape.threads <= (2 * narrow if shape.wide and not gated else narrow)
    small = shape.row_threads <= 32
    assert (
        shape.row_threads & (shape.row_threads - 1) == 0
        if small
        else shape.threads == shape.row_threads
    )


def test_a_grid_is_an_expression_of_the_rows() -> None:
    x, weight = Tensor("bfloat16", ("T", 96), (96, 1)), Tensor("bfloat16", (96,), (1,))
    numbers = {"eps": 1e-6, "weight_offset": 0.0}
    call = cuda_call("rms_norm", {"x": x, "weight": weight}, numbers)
    assert evaluate(call.blocks, {"T": 33}) == 3  # 16 rows a block
    assert {one.name: one.value for one in call.parameters}["rows"] == "T"
    assert call.results[0].shape == ("T", 96)


@pytest.mark.parametrize("width", [8, 1024, 4096, 14336, 100000])
def test_of_few_rows_more_blocks_take_one_until_a_thread_has_one_chunk(width: int) -> None:
    shape = part_shape(width, "bfloat16")
    chunks, few = width // 8, most_few(shape.few)
    assert shape.row_blocks(few) * shape.threads >= chunks > (shape.few - 1) * shape.threads
    assert shape.row_blocks(few + 1) * shape.threads * 2 >= chunks
    assert shape.blocks(few) <= 256
    rows = shape.blocks("T")  # as a table has it, for any number of rows
    for tokens in (1, 2, few, few + 1, 5 * few):
        assert evaluate(rows, {"T": tokens}) == shape.blocks(tokens)
        assert shape.blocks(tokens) == tokens * (shape.few if tokens <= few else shape.many)


def test_of_few_tokens_more_blocks_take_one_until_a_thread_has_one_head() -> None:
    q, k = (Tensor("bfloat16", ("T", n * 128), (n * 128, 1)) for n in (32, 8))
    angles = Tensor("float32", ("T", 64), (64, 1))
    given = {"q": q, "k": k, "cos": angles, "sin": angles}
    call = cuda_call("rotary_embedding", given, {"head_dim": 128})
    values = {one.name: one.value for one in call.parameters}
    for tokens, shift in ((1, 1), (128, 1), (129, 0), (8192, 0)):
        assert evaluate(values["shift"], {"T": tokens}) == shift
        assert evaluate(call.blocks, {"T": tokens}) == tokens << shift
    assert call.threads << 1 == 40 * values["lanes"]


REFUSED: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "a last dimension with gaps": (
        "rms_norm",
        {"x": Tensor("bfloat16", (4, 64), (128, 2))},
        "stride of 2",
    ),
    "rows that are not evenly apart": (
        "rms_norm",
        {"x": Tensor("bfloat16", (2, 3, 64), (1000, 64, 1))},
        "not evenly apart",
    ),
    "a row that registers do not hold": (
        "rms_norm",
        {"x": Tensor("bfloat16", (4, 20000), (20000, 1))},
        "16384 at most",
    ),
    "a weight of another type": (
        "rms_norm",
        {"weight": Tensor("float32", (64,), (1,))},
        "weight is float32",
    ),
    "another element type": (
        "rms_norm",
        {"x": Tensor("float64", (4, 64), (64, 1)), "weight": Tensor("float64", (64,), (1,))},
        "x is float64",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_kernels_do_not_take_is_refused_with_the_reason(name: str) -> None:
    op, other, why = REFUSED[name]
    tensors = {"x": Tensor("bfloat16", (4, 64), (64, 1)), "weight": Tensor("bfloat16", (64,), (1,))}
    with pytest.raises(CompileError) as caught:
        cuda_call(op, tensors | other, {"eps": 1e-6, "weight_offset": 0.0})
    assert why in caught.value.why
    assert f"vcc::{op}" in caught.value.what


def test_a_scale_block_is_the_row_or_128_values() -> None:
    case = next(c for c in norm_cases(torch.bfloat16, (256,)) if c.op == "rms_norm_quant_dynamic")
    assert "_row_" in call_of(replace(case, numbers={**case.numbers, "block_size": 256})).symbol
    assert "_block_" in call_of(replace(case, numbers={**case.numbers, "block_size": 128})).symbol
    with pytest.raises(CompileError) as caught:
        call_of(replace(case, numbers={**case.numbers, "block_size": 64}))
    assert "blocks of 64" in caught.value.why


def test_rows_of_more_dimensions_have_one_stride() -> None:
    assert row_stride("op", Tensor("bfloat16", (2, 3, 8), (72, 24, 1)), "x") == 24
    assert row_stride("op", Tensor("bfloat16", (8,), (1,)), "x") == 8
