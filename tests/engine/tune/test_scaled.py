"""Products of fp8 values with scales: recorded, and tried on doubles that compute them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.recorded_products import answered

from vcc.engine import native
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import ParamKind
from vcc.engine.tune import bench
from vcc.engine.tune.operands import exact_part, operands_of, random_bits
from vcc.engine.tune.record import A_SCALE, W_SCALE, A, C, D, W, operand_sizes
from vcc.engine.tune.self_test import chosen, form_of, inexact
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.storable import why_not
from vcc.engine.tune.store import GemmEntry, GemmStore

pytestmark = pytest.mark.skipif(
    native.library("vcc_abi") is None, reason="built without a compiler"
)

FP8 = "float8_e4m3fn"
ROWS = GemmShape(5, 64, 32, FP8, False, "bfloat16", "rows")
SHAPES = (
    *(ROWS, replace(ROWS, has_c=True), replace(ROWS, out="float32")),
    replace(ROWS, scales="tensor", m=70),
    GemmShape(8, 144, 512, FP8, True, "bfloat16", "blocks"),
    GemmShape(4, 272, 640, FP8, False, "bfloat16", "blocks"),
)


def test_products_with_scales_are_recorded_and_exact(tmp_path: Path) -> None:
    answer = answered(tmp_path / "store", SHAPES)
    assert answer.refused == ()
    assert answer.self_test is not None
    assert answer.self_test.passed, answer.self_test.why
    entries = GemmStore(tmp_path / "store").entries(answer.gpu)
    assert [entry.shape for entry in entries] == sorted(SHAPES)
    for entry in entries:
        table, sizes = decode(entry.table), operand_sizes(entry.shape, 0)
        used = [index for index, size in enumerate(sizes) if size]
        assert [(one.index, one.size) for one in table.regions] == [(i, sizes[i]) for i in used]
        (node,) = table.nodes
        pointers = {p.offset: p.region for p in node.params if p.kind is ParamKind.POINTER}
        order = (A, W, C, D, A_SCALE, W_SCALE)
        assert pointers == {8 * order.index(i): at for at, i in enumerate(used)}


@pytest.mark.parametrize(
    ("form", "sizes"), [("tensor", (4, 4)), ("rows", (20, 256)), ("blocks", (20, 16))]
)
def test_scales_have_bytes_of_their_own(form: str, sizes: tuple[int, int]) -> None:
    assert operand_sizes(replace(ROWS, scales=form), 7)[4:] == (7, *sizes)
    assert operand_sizes(replace(ROWS, has_c=True), 7)[:4] == (5 * 32, 64 * 32, 128, 5 * 64 * 2)
    assert operand_sizes(GemmShape(5, 64, 32, "float16"), 7)[4:] == (7, 0, 0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scales": "mixed"}, r"scales: mixed.*one number for each side, or"),
        (
            {"scales": "blocks", "k": 512, "m": 6},
            r"6x64x512.*scales: blocks \(BLK128x128_32F and VEC128_32F\).*STATUS_NOT_SUPPORTED",
        ),
        ({"out": "float16"}, r"into dtype 2, scales: rows \(OUTER_VEC_32F\).*STATUS_NOT_SUPPORTED"),
        ({"n": 72}, "5x72x32 of fp8.*CUBLAS_STATUS_NOT_SUPPORTED"),
    ],
)
def test_what_the_library_has_not_is_refused_with_shape_form_and_status(
    tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    answer = answered(tmp_path / "store", (replace(ROWS, **changes), ROWS))  # type: ignore[arg-type]
    (refused,) = answer.refused
    assert re.search(why, refused.why), refused.why
    assert answer.recorded == 1


def test_a_library_that_is_wrong_about_fp8_loses_those_products_alone(tmp_path: Path) -> None:
    """Inexact ones agree with their own recording, and with nothing else."""
    others = (replace(ROWS, m=7), replace(ROWS, dtype="bfloat16", out="", scales=""))
    answer = answered(tmp_path / "store", (ROWS, *others), lt="inexact")
    assert answer.self_test is not None
    assert answer.self_test.passed
    assert [one.shape for one in answer.refused] == [ROWS, others[0]]
    assert all("cuBLASLt is not exact" in one.why for one in answer.refused)
    assert "256 of 256 exact results" in answer.refused[0].why
    entries = GemmStore(tmp_path / "store").entries(answer.gpu)
    assert [one.shape for one in entries] == [others[1]]


@pytest.mark.parametrize("out", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("scales", ["tensor", "rows", "blocks"])
def test_exact_results_are_those_of_plain_torch(out: str, scales: str) -> None:
    torch = pytest.importorskip("torch")
    from vcc.engine.ops.native_scaled import scaled_linear

    shape = GemmShape(9, 48, 160, FP8, True, out, scales)
    given = operands_of(shape, 3)
    views = {i: torch.from_numpy(data) for i, data in given.items()}
    a, w = (views[i].view(torch.float8_e4m3fn) for i in (A, W))
    a_scale, w_scale = views[A_SCALE], views[W_SCALE]
    if scales != "tensor":  # those of a are by block, then by row
        a_scale = a_scale.view(-1, 9).T
    if scales == "blocks":
        w_scale = w_scale.view(1, 4)  # two and room for two more
    bias = views[C].view(getattr(torch, out))
    ranges = [48] if scales == "tensor" else []
    sizes = (a.view(9, 160), w.view(48, 160), a_scale, w_scale, bias, ranges)
    result = scaled_linear(*sizes, getattr(torch, out)).contiguous().view(torch.uint8).numpy()
    assert inexact(shape, given, result.reshape(-1)) == ""
    spoilt = result.reshape(-1).copy()
    spoilt[-2] ^= 1
    assert "1 of 192 exact" in inexact(shape, given, spoilt)
    assert exact_part(shape, given)[2].shape == (4, 48)


def test_each_form_is_tried_though_its_kernels_are_known() -> None:
    """Scales that lie in another way are another form."""
    made = [
        GemmShape(m, 128, k, FP8, False, "bfloat16", "blocks") for k in (512, 640) for m in (4, 8)
    ]
    entries = [GemmEntry(shape, b"", {"a" * 64: b""}) for shape in made]
    assert [form_of(one.shape)[-1] for one in entries] == [False, False, True, True]
    tried = chosen([*entries[:1] * 50, entries[2], *entries[:1] * 50])
    assert {one.shape for one in tried} == {made[0], made[2]}


def test_what_is_timed_is_what_a_player_launches() -> None:
    pytest.importorskip("triton")
    from vcc.engine.ops.triton.scaled import SPREAD_LANES

    assert bench.SPREAD_LANES == SPREAD_LANES


def test_random_fp8_is_finite_and_about_one() -> None:
    torch = pytest.importorskip("torch")
    found = torch.from_numpy(random_bits(4096, FP8, 1)).view(torch.float8_e4m3fn).float()
    assert bool(found.isfinite().all())
    assert 0.8 < float(found.std()) < 1.1
    assert np.unique(found.numpy()).size > 100


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ((64, 32, "bfloat16", True, "", ""), ""),
        ((64, 32, FP8, True, "bfloat16", "rows"), ""),
        ((64, 40, FP8, False, "bfloat16", "rows"), "multiples of 16"),
        ((64, 32, FP8, True, "float32", "tensor"), "no bias of float32"),
        ((64, 512, FP8, False, "bfloat16", "blocks"), ""),
        ((64, 1408, FP8, False, "bfloat16", "blocks"), ""),
        ((64, 576, FP8, False, "bfloat16", "blocks"), "whole blocks, where k is a multiple of 128"),
        ((64, 32, FP8, False, "bfloat16", "mixed"), "one scale for all activations"),
    ],
)
def test_what_the_store_never_holds_has_a_reason(family: tuple[object, ...], why: str) -> None:
    found = why_not(*family)  # type: ignore[arg-type]
    assert (why in found) if why else not found
