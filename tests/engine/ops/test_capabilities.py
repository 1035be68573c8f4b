"""What an install lacks is said with what would bring it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import kernel_packages

from vcc.engine import native
from vcc.engine.ops import capabilities
from vcc.engine.ops.capabilities import available, older


def test_a_package_that_is_not_installed() -> None:
    assert dict(available("rocm").missing)["hip"] == (
        "amd-aiter is not installed: pip install amd-aiter"
    )
    assert dict(available("xpu").missing)["xpu"] == (
        "vllm-xpu-kernels is not installed: pip install vllm-xpu-kernels"
    )


@pytest.mark.parametrize(
    ("backend", "platform", "version", "reason"),
    [
        ("hip", "rocm", "0.1.7.post2.dev18", ""),
        ("hip", "rocm", "0.2", ""),
        ("hip", "rocm", "0.1.6", 'amd-aiter 0.1.6 is older than 0.1.7: pip install --upgrade "'),
        ("xpu", "xpu", "0.1.12.1", ""),
        ("xpu", "xpu", "0.1.3.1", "vllm-xpu-kernels 0.1.3.1 is older than 0.1.12"),
    ],
)
def test_an_installed_package_is_judged_by_its_version(
    backend: str,
    platform: str,
    version: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel_packages.install(tmp_path, backend, version, monkeypatch)
    found = available(platform)
    assert dict(found.missing).get(backend, "").startswith(reason)
    assert bool(dict(found.missing).get(backend)) == bool(reason)
    assert dict(found.versions)[backend] == version


def test_metadata_without_the_module_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kernel_packages.PACKAGES, "hip", ("amd_aiter", {}))
    kernel_packages.install(tmp_path, "hip", "0.1.9", monkeypatch)
    assert dict(available("rocm").missing)["hip"] == (
        "amd-aiter 0.1.9 is installed without its module aiter"
    )


def test_a_library_that_was_not_built_and_triton_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "library", lambda name: None)
    assert dict(available("cpu").missing)["cpu"].startswith("libvcc_ops.so was not built")
    monkeypatch.setattr(capabilities.util, "find_spec", lambda name: None)
    assert dict(available("cuda").missing)["triton"] == (
        "triton is not installed: pip install triton"
    )


def test_a_platform_out_of_tree_lacks_nothing() -> None:
    assert available("tpu") == capabilities.EVERYTHING


def test_versions_are_compared_by_their_numbers() -> None:
    assert older("0.1.9", "0.1.10")
    assert not older("0.1.10", "0.1.9")
    assert not older("0.1.7.post2.dev18", "0.1.7")
    assert not older("1.0+rocm7", "1.0")
    assert older("unknown", "0.1")
