"""Whole graphs recorded on a real device: eager, stock, a module; each proven without torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.gpu_jobs import GPU, vcc
from support.recorded_demo import LIMITS, SIZES, compiled, recorded_demo

pytestmark = pytest.mark.gpu


@contextmanager
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Factories are looked for in the working directory."""
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        yield


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_eager_demo_is_recorded_and_runs_without_torch(tmp_path: Path, dtype: str) -> None:
    recorded_demo(tmp_path, "none", dtype)


def test_separate_decode_graphs_are_recorded_too(tmp_path: Path) -> None:
    sizes = ("--mode", "full_decode_only", "--shapes", "1,4,8")
    words = ("--compile", "none", "--target", "sm_90", "--dtype", "bf16")
    found = compiled(tmp_path / "store", "demo", *words, *sizes, *LIMITS).json
    assert all(one["uniform"] for one in found["info"]["recorded"])


def test_a_module_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_folder(GPU, monkeypatch):
        words = ("recorded_models:Mlp", "--shape", "x=32x256", "--compile", "none")
        found = compiled(
            tmp_path / "store", *words, "--target", "sm_90", "--dtype", "fp32", "--mode", "full"
        ).json
        assert len(found["info"]["recorded"]) == 1
        target = ("--target", "sm_90", "--dtype", "fp32", "--require-warm", "--json")
        done = vcc("run", *words, *target, store=tmp_path / "store")
        assert done.code == 0, done.text
        (output,) = done.json["outputs"]
        assert output["shape"] == [32, 256]
        plain = vcc("run", *words, "--target", "cpu", "--dtype", "fp32", "--json", store=tmp_path)
        assert plain.code == 0, plain.text
        assert plain.json["outputs"][0]["shape"] == output["shape"]


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        ("Unwritten", "does not give what the model gave"),
        ("Counting", "differ from those of the eager step"),
        ("Asking", "cannot be captured"),
    ],
)
def test_modules_that_cannot_be_recorded_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factory: str, why: str
) -> None:
    with in_folder(GPU, monkeypatch):
        words = (f"recorded_models:{factory}", "--shape", "x=4x16", "--compile", "none")
        more = ("--target", "sm_90", "--dtype", "fp32", "--mode", "full")
        done = compiled(tmp_path / "store", *words, *more, code=9)
    assert why in done.text, done.text


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    words = ("demo", "--compile", "none", "--target", "sm_80", "--dtype", "bf16", *SIZES)
    done = compiled(tmp_path / "store", *words, code=3)
    assert "sm_80" in done.text, done.text
