"""Experts with fp8 weights in Triton: right by the interpreter, compiled for devices with fp8."""

from __future__ import annotations

from typing import Any

import pytest
from support.interpreted import run_interpreted

from vcc.engine.graphs.cubin import read_cubin
from vcc.engine.ops.triton.scaled_experts import scaled_expert_down, scaled_expert_up
from vcc.engine.ops.triton.specs import KernelSpec
from vcc.engine.ops.triton.wrapped_scaled_experts import BY_BLOCK, BY_ROW
from vcc.engine.torch_shim.profiles import PROFILES


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
def test_experts_by_the_interpreter(dtype: str) -> None:
    run_interpreted("scaled_expert_cases", dtype)


FP8, FP32, BF16 = "*fp8e4nv", "*fp32", "*bf16"
PLACES = {"slots": "*i32", "owners": "*i32"}
UP = {"x": FP8, "gate_up": FP8, "x_scale": FP32, "w_scale": FP32, **PLACES, "inner": BF16}
DOWN = {"inner": FP8, "down": FP8, "x_scale": FP32, "w_scale": FP32, "weights": FP32, **PLACES}
DOWN |= {"parts": FP32}
FORMS = (
    {"MOVING": 0, "BY_BLOCK": False, "BY_ROW": False},
    {"MOVING": 1, "BY_BLOCK": False, "BY_ROW": True},
    {"MOVING": 2, "BY_BLOCK": True, "BY_ROW": False},
)


def specs(form: dict[str, Any]) -> tuple[KernelSpec, KernelSpec]:
    cut = dict(BY_BLOCK if form["BY_BLOCK"] else BY_ROW)
    warps = cut.pop("num_warps")
    sizes = {"HIDDEN": 2048, "WIDTH": 768, "FEW": 1024, **cut, **form}
    up, down = ((*types.items(), ("pairs", "i32")) for types in (UP, DOWN))
    return (
        KernelSpec(scaled_expert_up, up, {"SHARE": 8, **sizes}, frozenset(UP), warps),
        KernelSpec(scaled_expert_down, down, sizes, frozenset(DOWN), warps),
    )


SLOW = {name for name, one in PROFILES.items() if one.arch not in (89, 90)}


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, one in PROFILES.items()
        if one.arch >= 89
    ],
)
def test_products_compile_for_every_target_that_has_the_type(
    target: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Tensor cores take fp8 as it is: nothing is widened before a product."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for form in FORMS if target in SLOW else FORMS[1:]:
        for spec in specs(form):
            made = spec.compile(PROFILES[target])
            assert made.shared <= PROFILES[target].shared_per_block_optin
            (function,) = read_cubin(made.cubin).functions.values()
            assert function.stack == 0  # nothing is spilled
