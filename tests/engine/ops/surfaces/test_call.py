"""forward_hip and forward_xpu call a package as its row says, and give what plain torch gives."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import kernel_packages

from vcc.cache.errors import DeviceError
from vcc.engine.ops import native_torch
from vcc.engine.ops.capabilities import available
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.layers import (
    GeluTanhAndMul,
    RMSNorm,
    RotaryEmbedding,
    SiluAndMul,
    TopkSoftmax,
)
from vcc.engine.ops.names import KNOWN_OPS
from vcc.engine.ops.surfaces.call import surface_ops

PLATFORMS = {"hip": "rocm", "xpu": "xpu"}
VERSIONS = {"hip": "0.1.9", "xpu": "0.1.12.1"}
CALLS = {
    "hip": ("aiter", "rmsnorm2d_fwd", "rmsnorm2d_fwd_with_add"),
    "xpu": ("vllm_xpu_kernels._C", "rms_norm", "fused_add_rms_norm"),
}


@pytest.fixture(params=["hip", "xpu"])
def package(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A stand-in package on `sys.path`; its back end."""
    kernel_packages.install(tmp_path, request.param, VERSIONS[request.param], monkeypatch)
    surface_ops.cache_clear()
    yield request.param
    surface_ops.cache_clear()
    for name in [m for m in sys.modules if m.startswith(("aiter", "vllm_xpu_kernels"))]:
        if hasattr(sys.modules[name], "library"):
            sys.modules[name].library._destroy()
        del sys.modules[name]


def choice(package: str) -> OpChoice:
    platform = PLATFORMS[package]
    return OpChoice(frozenset(KNOWN_OPS), platform, here=available(platform))


def calls(package: str) -> list[str]:
    found: list[str] = importlib.import_module(CALLS[package][0]).calls
    return found


def test_norms_go_to_the_package_and_equal_plain_torch(package: str) -> None:
    layer = RMSNorm(48, 1e-5, choice=choice(package)).bfloat16()
    layer.weight.copy_(torch.randn(48))
    assert layer.method == f"forward_{package}"
    assert VERSIONS[package] in layer.choice_reason
    wide = torch.randn(5, 96).bfloat16()
    x, residual = wide[:, :48], torch.randn(5, 48).bfloat16()
    before = (wide.clone(), residual.clone())
    want = native_torch.rms_norm(x, layer.weight, 1e-5)
    assert torch.equal(layer(x), want)
    y, total = layer(x, residual)
    both = native_torch.fused_add_rms_norm(x, residual, layer.weight, 1e-5)
    assert torch.equal(y, both[0])
    assert torch.equal(total, both[1])
    assert torch.equal(wide, before[0])
    assert torch.equal(residual, before[1])
    assert calls(package) == [*CALLS[package][1:]]
    heads = torch.randn(3, 4, 48).bfloat16()
    assert torch.equal(layer(heads), native_torch.rms_norm(heads, layer.weight, 1e-5))
    twice = layer(residual, residual)
    assert torch.equal(twice[1], residual + residual)
    assert layer.refusals == []


def test_activations_go_to_the_package_and_equal_plain_torch(package: str) -> None:
    x = torch.randn(3, 64).bfloat16()
    for kind, name in ((SiluAndMul, "silu_and_mul"), (GeluTanhAndMul, "gelu_tanh_and_mul")):
        layer = kind(choice=choice(package))
        torch.testing.assert_close(layer(x), kind()(x.float()).bfloat16())
        assert calls(package)[-1] == name
    empty = SiluAndMul(choice=choice(package))(x[:0])
    assert empty.shape == (0, 32)


@pytest.mark.parametrize("half", [8, 3])
def test_rotations_go_to_the_package_and_equal_plain_torch(package: str, half: int) -> None:
    layer = RotaryEmbedding(16, choice=choice(package))
    qkv, angles = torch.randn(7, 6 * 16), torch.randn(7, half)
    q, k = qkv[:, :64], qkv[:, 64:96]
    want = native_torch.rotary_embedding(q, k, angles.cos(), angles.sin(), 16)
    for got, reference in zip(layer(q, k, angles.cos(), angles.sin()), want, strict=True):
        assert torch.equal(got, reference)
        assert got.is_contiguous()
    assert len(calls(package)) == {"hip": 1, "xpu": 2}[package]


@pytest.mark.parametrize("renormalise", [True, False])
def test_routers_go_to_the_package_and_equal_plain_torch(package: str, renormalise: bool) -> None:
    layer = TopkSoftmax(3, renormalise, choice=choice(package))
    logits = torch.randn(12, 5).T
    want = TopkSoftmax(3, renormalise)(logits)
    for got, reference in zip(layer(logits), want, strict=True):
        assert torch.equal(got, reference)
    assert calls(package) == ["topk_softmax"]


def test_f8_arguments_that_the_package_refuses_run_in_plain_torch(package: str) -> None:
    """F8: the preferred back end refuses, the native body runs, the result is eager's."""
    layer = RMSNorm(32, choice=choice(package)).double()
    x = torch.randn(4, 32).double()
    assert torch.equal(layer(x), RMSNorm(32).double()(x))
    assert layer.refusals == [f"rms_norm: {package} does not take float64"]
    assert calls(package) == []


def test_a_limit_of_the_package_leaves_the_next_back_end(package: str) -> None:
    layer = RMSNorm(32, 1e-6, 1.0, choice=choice(package))
    assert layer.method == "forward_triton"
    assert "weight_offset 0 only" in layer.route.refused[0].refusal


def test_the_alias_of_forward_hip(package: str) -> None:
    layer = RMSNorm(16, choice=choice(package)).bfloat16()
    x = torch.randn(2, 16).bfloat16()
    if package == "hip":
        assert torch.equal(layer.forward_rocm(x), layer.forward_hip(x))
        assert calls(package) == ["rmsnorm2d_fwd"] * 2


def test_a_package_without_the_symbol_is_an_error_that_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kernel_packages.PACKAGES, "hip", ("amd_aiter", {"aiter/__init__.py": ""}))
    kernel_packages.install(tmp_path, "hip", "0.1.9", monkeypatch)
    surface_ops.cache_clear()
    layer: Any = RMSNorm(16, choice=choice("hip"))
    with pytest.raises(DeviceError, match="amd-aiter does not give aiter:rmsnorm2d_fwd") as caught:
        layer.bfloat16()(torch.randn(2, 16).bfloat16())
    assert "0.1.7" in caught.value.hint
    sys.modules.pop("aiter", None)
    surface_ops.cache_clear()
