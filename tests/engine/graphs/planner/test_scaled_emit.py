"""Scaled products in a table: whose kernels are its variants, and which launches stay launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from vcc.engine.graphs.planner.emit import Emitter, Places, variants_for
from vcc.engine.graphs.planner.flat import FlatLaunch, FlatProduct, Pointer
from vcc.engine.graphs.planner.memory import Memory
from vcc.engine.graphs.planner.scaled import SPREAD, as_product
from vcc.engine.graphs.planner.sources import KernelSource
from vcc.engine.graphs.planner.types import Launch
from vcc.engine.graphs.table.layout import REDUCE_PARAM_BYTES
from vcc.engine.graphs.table.types import NONE, READ, WRITE, NodeKind, RegionKind
from vcc.engine.torch_shim.triton_build import CompiledKernel

CONSTANTS: Mapping[str, Any] = {
    "COLUMNS": 64,
    "DEPTH": 96,
    "MOVING": 1,
    "FIRST": 0,
    "SECOND": 0,
    "PARTS": 0,
    "HAS_BIAS": False,
    "BLOCK": 128,
    "LEAST": 16,
    "LEAST_COLUMNS": 64,
    "LEAST_STAGES": 8,
    "LEAST_LEFT": 0,
    "FEW": 64,
    "FEW_COLUMNS": 64,
    "FEW_STAGES": 6,
    "FEW_LEFT": 0,
    "TILE_ROWS": 128,
    "TILE_COLUMNS": 128,
    "STAGES": 4,
    "LEFT": 1,
    "BAND": 8,
}
KINDS = {
    "x": "*fp8e4nv",
    "weight": "*fp8e4nv",
    "x_scale": "*fp32",
    "w_scale": "*fp32",
    "bias": "*fp32",
    "out": "*bf16",
    "rows": "i32",
}
NAMES = ("x", "weight", "x_scale", "w_scale", "bias", "out")


def kernel(digest: str = "a", kinds: Mapping[str, str] = KINDS, **constants: Any) -> CompiledKernel:
    parameters = tuple(kinds.items())
    known = {**CONSTANTS, **constants}
    source = KernelSource(digest * 64, "scaled_linear", "", "", parameters, known)
    return CompiledKernel(b"", digest * 64, "scaled_linear", 8, 1024, parameters, source)


def launch(of: CompiledKernel) -> Launch:
    given: dict[str, Any] = {**{name: name for name in NAMES}, "rows": "T"}
    return Launch(of, ("T", 1, 1), given, dict.fromkeys(NAMES, "r") | {"out": "rw"})


@pytest.mark.parametrize(
    ("constants", "scales"),
    [
        *(({"MOVING": 1}, "rows"), ({"MOVING": 0, "PARTS": 1}, "tensor")),
        *(({"MOVING": 0}, "mixed"), ({"MOVING": 2}, "blocks")),
        *(({"MOVING": 1, "PARTS": 1}, ""), ({"MOVING": 0, "PARTS": 3}, "")),
        ({"MOVING": 2, "BLOCK": 64}, ""),
    ],
)
def test_forms_of_scales_are_known_by_the_kernels_constants(
    constants: dict[str, int], scales: str
) -> None:
    found = as_product(launch(kernel(**constants)))
    if not scales:
        assert found is None
        return
    assert found is not None
    assert found.scaling is not None
    assert (found.n, found.k, found.m, found.c) == (64, 96, "T", None)
    assert (found.scaling.scales, found.scaling.out) == (scales, "bfloat16")


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": "i64"},
        {"x": "*bf16"},
        {"out": "*fp64"},
        {"w_scale": "*bf16"},
    ],
)
def test_another_signature_stays_a_launch(changes: dict[str, str]) -> None:
    assert as_product(launch(kernel(kinds={**KINDS, **changes}))) is None


def test_a_bias_is_an_operand_where_it_has_the_results_type() -> None:
    kinds = {**KINDS, "bias": "*bf16"}
    found = as_product(launch(kernel(kinds=kinds, HAS_BIAS=True)))
    assert found is not None
    assert found.c == "bias"
    assert as_product(launch(kernel(HAS_BIAS=True))) is None


def test_a_users_kernel_of_the_same_name_stays_a_launch() -> None:
    own = kernel()
    source = replace(own.source, constants={"COLUMNS": 64, "DEPTH": 96})
    assert as_product(launch(replace(own, source=source))) is None


def test_equal_products_of_other_kernels_stay_launches() -> None:
    """A variant is found by the product alone, so there is one kernel for each."""
    memory = Memory("m", RegionKind.WORKSPACE, 1 << 16)
    places = Places({RegionKind.WORKSPACE: 0}, {"m": memory}, {"m": 0})
    emitter = Emitter(places, {}, {"T": 128})
    nodes = [emitter.node(flat(kernel(digest))) for digest in ("a", "b", "a")]
    assert [one.kind for one in nodes] == [NodeKind.GEMM, NodeKind.KERNEL, NodeKind.GEMM]
    assert [one.target for one in nodes] == [0, 0, 0]
    variants = variants_for(emitter, emitter.products, ())
    kernels = list(emitter.kernels)
    assert [(one.max_rows, kernels[one.kernel].cubin) for one in variants] == [
        *((16, "a" * 64), (64, "a" * 64), (0, "a" * 64)),
    ]
    assert [param.offset for param in nodes[0].params] == [0, 8, 24, 32, 40]


@pytest.mark.parametrize(
    ("often", "most", "scales"), [(1, 128, "mixed"), (8192, 8192, "rows"), (8192, 8193, "mixed")]
)
def test_one_scale_that_stands_for_every_row_is_one_a_row(
    often: int, most: int, scales: str
) -> None:
    """The kernel reads the first of them, a stored product one for each row."""
    memory = Memory("m", RegionKind.WORKSPACE, 1 << 16)
    places = Places({RegionKind.WORKSPACE: 0}, {"m": memory}, {"m": 0})
    emitter = Emitter(places, {}, {"T": most})
    emitter.node(replace(flat(kernel(MOVING=0)), scales="mixed", repeated=often))
    assert [one.scales for one in emitter.products] == [scales]
    assert [one.scales for one in emitter.scaled()] == [scales] * 3


def test_products_by_block_have_a_kernel_that_spreads_scales() -> None:
    """It stands in all ways of the product, and those of other scales have none."""
    memory = Memory("m", RegionKind.WORKSPACE, 1 << 16)
    places = Places({RegionKind.WORKSPACE: 0}, {"m": memory}, {"m": 0})
    spread = CompiledKernel(
        b"", "f" * 64, "spread_scales", 4, 0, SPREAD.parameters, kernel().source
    )
    emitter = Emitter(places, {SPREAD.key(): spread}, {"T": 128})
    emitter.node(flat(kernel()))
    emitter.node(replace(flat(kernel("b", MOVING=2)), scales="blocks"))
    variants, kernels = emitter.scaled(), list(emitter.kernels)
    assert [one.scales for one in variants] == ["rows"] * 3 + ["blocks"] * 3
    assert [one.reduce_kernel for one in variants[:3]] == [NONE] * 3
    spreading = [kernels[one.reduce_kernel] for one in variants[3:]]
    assert [one.function for one in spreading] == ["spread_scales"] * 3
    assert spreading[0].param_bytes == REDUCE_PARAM_BYTES


def flat(of: CompiledKernel) -> FlatProduct:
    spots = {name: Pointer("m", 256 * at, READ) for at, name in enumerate(NAMES)}
    spots["out"] = replace(spots["out"], access=WRITE)
    operands = {
        "a": spots["x"],
        "w": spots["weight"],
        "d": spots["out"],
        "a_scale": spots["x_scale"],
        "w_scale": spots["w_scale"],
    }
    own = FlatLaunch(of, ("T", 1, 1), {**spots, "rows": "T"})
    return FlatProduct("T", 64, 96, "float8_e4m3fn", operands, "bfloat16", "rows", own)
