"""Triton kernels over a KV cache in fp8: right by the interpreter, compiled without a spill."""

from __future__ import annotations

from typing import Any

import pytest
from support.interpreted import run_interpreted

from vcc.cache.errors import CompileError
from vcc.engine.graphs.cubin import read_cubin
from vcc.engine.ops.triton.registry import Facts, KernelSpec, TensorLayout, launches
from vcc.engine.torch_shim.profiles import PROFILES

FP8 = "float8_e4m3fn"


def test_kernels_by_the_interpreter() -> None:
    run_interpreted("kv_fp8_cases")


def kernels(facts: Facts, dim: int, *, scaled: bool) -> list[KernelSpec]:
    """Those of attention and of both writes, for eight query and two KV heads."""
    width, kv = 8 * dim, 2 * dim
    cache = TensorLayout((2, "K", facts.block_size, 2, dim), dtype=FP8)
    rows = {"q": TensorLayout(("T", width), (width + 2 * kv, 1)), "kv_cache": cache}
    scale = {"kv_scale": TensorLayout((2,))} if scaled else {}
    rule = {"scale": dim**-0.5, "sliding_window": 0, "soft_cap": 0.0}
    written = {name: TensorLayout(("T", kv)) for name in "kv"} | {"kv_cache": cache, **scale}
    turn = {name: TensorLayout(("T", dim // 2)) for name in ("cos", "sin")}
    calls = {
        "paged_attention": {**rows, "out": TensorLayout(("T", width)), **rule, **scale},
        "kv_write": written,
        "rope_kv_write": {**rows, **written, **turn, "head_dim": dim},
    }
    return [
        launch.kernel
        for op, literals in calls.items()
        for launch in launches(op, literals, facts).launches
        if isinstance(launch.kernel, KernelSpec)
    ]


TARGETS = ["sm_90", *(pytest.param(t, marks=pytest.mark.slow) for t in ("sm_100", "sm_120"))]


@pytest.mark.parametrize("dim", [128, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile_without_a_spill(
    target: str, dim: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    profile = PROFILES[target]
    for spec in kernels(Facts("bfloat16", profile, 16, 64), dim, scaled=True):
        made = spec.compile(profile)
        assert made.shared <= profile.shared_per_block_optin
        (function,) = read_cubin(made.cubin).functions.values()
        assert function.stack == 0, spec.function.fn.__name__


def test_scales_are_a_parameter_only_where_they_are_given() -> None:
    facts = Facts("bfloat16", PROFILES["sm_90"], 16, 64)
    for scaled in (True, False):
        for spec in kernels(facts, 64, scaled=scaled):
            assert (("kv_scale", "*fp32") in spec.parameters) == scaled
            cache = dict(spec.parameters).get("kv_cache", "*fp8e4nv")  # the reduction has none
            assert cache == "*fp8e4nv"


@pytest.mark.parametrize("target", ["sm_80", "sm_86"])
def test_devices_without_the_type_are_refused(target: str) -> None:
    with pytest.raises(CompileError, match=f"not for {target}"):
        kernels(Facts("bfloat16", PROFILES[target], 16, 64), 64, scaled=False)
