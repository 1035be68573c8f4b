"""Where torch is not installed: look-ups hit, a GPU artifact boots, and the rest says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.fake_cuda import library
from support.flow import ask, built
from support.key_artifacts import asked, publish
from support.no_torch import run, without_torch

from vcc.cache.store import Store

GPU = ("run", "demo", "--target", "sm_90", "--prompt", "abc", "--max-new-tokens", "3")
MODULES = """
import json, sys
from vcc.cli.main import run
code = run(sys.argv[1:])
print("\\n" + json.dumps([code, sorted(sys.modules)]))
"""


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed, without torch."""
    return without_torch(tmp_path_factory.mktemp("packages") / "site")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with an artifact for the CPU."""
    store = Store.open(tmp_path / "store")
    publish(store, asked())
    return store


def vcc(packages: Path, store: Path, *words: object, **environment: str) -> Any:
    return run(packages, *words, VCC_CACHE_DIR=str(store), **environment)


def test_there_is_no_torch(packages: Path) -> None:
    done = run(packages, code="import torch")
    assert "ModuleNotFoundError" in done.stderr
    done = run(packages, code="from importlib import metadata; metadata.version('torch')")
    assert "PackageNotFoundError" in done.stderr


@pytest.mark.parametrize(("more", "code"), [((), 3), (("--require-warm",), 1)])
def test_a_run_finds_what_answers_and_says_what_is_missing(
    packages: Path, store: Store, more: tuple[str, ...], code: int
) -> None:
    (entry,) = store.entries()
    done = vcc(packages, store.root, "run", "demo", "--prompt", "a", *more)
    assert done.returncode == code, done.stderr
    assert f"artifact {entry.artifact[:12]} answers" in done.stderr
    assert "it needs torch 2." in done.stderr
    assert "which is not installed" in done.stderr
    assert "pip install 'torch==2." in done.stderr


def test_a_miss_says_that_nothing_can_be_built(packages: Path, tmp_path: Path) -> None:
    done = vcc(packages, tmp_path / "none", "run", "demo", "--prompt", "a")
    assert done.returncode == 3
    assert "without torch none can be built" in done.stderr
    done = vcc(packages, tmp_path / "none", "compile", "demo")
    assert done.returncode == 3
    assert "torch is not installed" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "demo", "--dry-run", "--json"),
        ("explain", "demo", "--json"),
        ("inspect", "key", "demo", "--json"),
        ("inspect", "cache", "--json"),
        ("diff", "demo", "demo", "--json"),
    ],
    ids=" ".join,
)
def test_what_only_looks_needs_no_torch(
    packages: Path, store: Store, words: tuple[str, ...]
) -> None:
    done = vcc(packages, store.root, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_a_gpu_artifact_is_found_booted_and_run_without_torch(
    packages: Path, tmp_path: Path
) -> None:
    """On the driver's double, which runs no kernels: every token is the first of the vocabulary."""
    root = tmp_path / "store"
    made = built(ask("demo", target="sm_90", max_num_batched_tokens=64), Store.open(root))
    assert made.entry is not None
    words = (*GPU, "--require-warm", "--golden", "off", "--json", "--report", tmp_path / "boot")
    done = run(packages, *words, code=MODULES, VCC_CACHE_DIR=str(root), VCC_LIBCUDA=str(library()))
    report, _, last = done.stdout.strip().rpartition("\n")
    code, modules = json.loads(last)
    assert code == 0, done.stderr
    assert json.loads(report)["counters"]["hits"] == 1
    assert json.loads(report)["counters"]["compiles"] == 0
    boot = json.loads((tmp_path / "boot").read_text())
    assert (boot["warm"], boot["hits"][0]["artifact"]) == (True, made.entry.artifact)
    assert all(one["built"] for one in boot["graphs"])
    assert sum(one["graphs"] for one in boot["graphs"]) >= boot["counters"]["captures"] > 0
    assert {one["route"] for one in boot["gemms"]} == {"triton"}
    assert boot["verified"]["bytes"] > 0
    heavy = ("torch", "triton", "cryptography", "obstore", "oras", "sqlite3", "tomllib")
    assert [name for name in modules if name.partition(".")[0] in heavy] == []
