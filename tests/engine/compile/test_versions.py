"""Versions are read from what is installed, for every kind of torch, and nothing is imported."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from vcc.engine.compile import versions as module
from vcc.engine.compile.toolchain import pass_versions
from vcc.engine.compile.versions import cuda_versions, formats, short_version, versions
from vcc.engine.config.levels import PASS_RULES
from vcc.engine.config.types import PassConfig
from vcc.engine.graphs.program import VERSION
from vcc.engine.passes.apply import PASSES, version_pairs

LIBRARIES = ("cuda", "cublas", "cudnn", "nccl")

CUDA_TORCH = """
from typing import Optional
__version__ = "2.13.0+cu128"
debug = False
cuda: Optional[str] = "12.8"
git_version = "cf30153c4c131c8164ee7798e5022d810682e2cb"
"""


@pytest.fixture
def torch_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a torch with this `version.py` and these distributions in front."""

    def put(text: str, **distributions: str) -> None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/__init__.py").write_text("raise SystemExit('imported')")
        (tmp_path / "torch/version.py").write_text(text)
        for name, version in distributions.items():
            folder = tmp_path / f"{name}-{version}.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return put


def test_all_factors_are_named_without_an_import() -> None:
    found = versions()
    assert set(found) == {"vcc", "vcc.abi", "torch", "triton", *LIBRARIES}
    assert found["torch"].startswith("2.")
    assert not any("/" in version for version in found.values())


def test_a_wheel_for_the_cpu_has_no_cuda(torch_of) -> None:
    torch_of("__version__ = '2.13.0+cpu'\ncuda = None\n")
    assert cuda_versions() == dict.fromkeys(LIBRARIES, "none")


def test_a_wheel_for_cuda_says_what_it_brings(torch_of) -> None:
    torch_of(CUDA_TORCH, nvidia_cublas_cu12="12.8.4.1", nvidia_cudnn_cu12="9.10.2.21")
    assert cuda_versions() == {
        "cuda": "12.8",
        "cublas": "12.8.4.1",
        "cudnn": "9.10.2.21",
        "nccl": "torch cf30153c4c13",
    }


def test_cuda_13_has_distributions_of_another_name(torch_of) -> None:
    torch_of(CUDA_TORCH.replace("12.8", "13.0"), nvidia_cublas="13.1.0.3")
    assert cuda_versions()["cublas"] == "13.1.0.3"


@pytest.mark.parametrize("text", ["", "def (", "cuda = object()\n", "cuda: str\n"])
def test_a_torch_that_says_nothing_has_no_cuda(torch_of, text: str) -> None:
    torch_of(text)
    assert cuda_versions() == dict.fromkeys(LIBRARIES, "none")


def test_without_torch_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    monkeypatch.setattr(sys, "path", [])
    found = module.versions()
    assert {found[name] for name in ("torch", "triton", *LIBRARIES)} == {"none"}


def test_formats_are_numbers_that_a_change_of_format_changes() -> None:
    assert formats() == {"manifest": "1", "program": str(VERSION), "table": "2"}


def test_a_pass_has_the_version_that_the_pass_itself_says() -> None:
    on = PassConfig(**{rule.name: True for rule in PASS_RULES})
    assert {f"pass.{name}": text for name, text in pass_versions(on)} == dict(version_pairs(PASSES))
    assert pass_versions(PassConfig()) == ()


def test_a_short_version_is_major_and_minor() -> None:
    assert short_version("2.13.0+cpu") == "2.13"
