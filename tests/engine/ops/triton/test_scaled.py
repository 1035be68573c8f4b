"""The Triton product of fp8 values: right by the interpreter, compiled for devices with fp8."""

from __future__ import annotations

from typing import Any

import pytest
from support.interpreted import run_interpreted

from vcc.engine.graphs.cubin import read_cubin
from vcc.engine.ops.triton.scaled import scaled_linear
from vcc.engine.ops.triton.specs import KernelSpec
from vcc.engine.ops.triton.wrapped_scaled import tiling_of
from vcc.engine.torch_shim.profiles import PROFILES


def test_products_by_the_interpreter() -> None:
    run_interpreted("scaled_cases")


def spec(moving: int, columns: int = 4096) -> KernelSpec:
    types = {"x": "*fp8e4nv", "weight": "*fp8e4nv", "x_scale": "*fp32", "w_scale": "*fp32"}
    types |= {"bias": "*bf16", "out": "*bf16"}
    constants = {"COLUMNS": columns, "DEPTH": 4096, "MOVING": moving, "FIRST": 2048, "SECOND": 3072}
    constants |= {"PARTS": 3 if moving != 2 else 0, "HAS_BIAS": False, "BLOCK": 128}
    constants |= tiling_of(columns, moving)
    warps = constants.pop("num_warps")
    parameters = (*types.items(), ("rows", "i32"))
    return KernelSpec(scaled_linear, parameters, constants, frozenset(types), warps)


@pytest.mark.parametrize("target", [name for name, one in PROFILES.items() if one.arch >= 89])
def test_products_compile_for_every_target_that_has_the_type(
    target: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Tensor cores take fp8 as it is: nothing is widened before a product."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for moving, columns in ((1, 4096), (1, 28672), (2, 4096), (2, 28672)):
        made = spec(moving, columns).compile(PROFILES[target])
        assert made.shared <= PROFILES[target].shared_per_block_optin
        (function,) = read_cubin(made.cubin).functions.values()
        assert function.stack == 0  # nothing is spilled
