"""Where CUPTI and cuBLASLt are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from vcc.engine.tune.libraries import CUPTI, candidates


def made(path: Path) -> str:
    path.parent.mkdir(parents=True)
    path.touch()
    return str(path)


def test_packages_come_before_the_toolkit_and_the_loaders_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, home = tmp_path / "site", tmp_path / "cuda"
    older = made(site / "nvidia" / "cuda_cupti" / "lib" / "libcupti.so.12")
    newer = made(site / "nvidia" / "cu13" / "lib" / "libcupti.so.13")
    toolkit = made(home / "extras" / "CUPTI" / "lib64" / "libcupti.so.12")
    monkeypatch.setenv("CUDA_HOME", str(home))
    found = candidates(CUPTI, [str(site), str(tmp_path / "other")])
    assert found == (newer, older, toolkit, "libcupti.so.13", "libcupti.so.12")


def test_without_any_file_the_names_are_left_to_the_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert candidates(("libx.so.1",), []) == ("libx.so.1",)
