"""GPU results know the sources they were measured on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.gpu.digest import FOLDERS, ROOT, digest, sources, stale


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text(f"# {folder}\n")
    return tmp_path


def result(folder: Path, name: str, **content: object) -> None:
    (folder / name).write_text(json.dumps(content))


@pytest.mark.parametrize("folder", FOLDERS)
def test_any_change_of_any_folder_changes_the_digest(tree: Path, folder: str) -> None:
    before = digest(tree)
    (tree / folder / "a.py").write_text("# other\n")
    assert digest(tree) != before


def test_a_moved_file_changes_the_digest(tree: Path) -> None:
    before = digest(tree)
    (tree / "csrc" / "a.py").rename(tree / "csrc" / "b.py")
    assert digest(tree) != before


def test_what_python_writes_does_not(tree: Path) -> None:
    before = digest(tree)
    (tree / "csrc" / "__pycache__").mkdir()
    (tree / "csrc" / "__pycache__" / "a.py").write_text("")
    (tree / "csrc" / "a.pyc").write_text("")
    assert digest(tree) == before


def test_results_of_other_sources_are_stale(tree: Path, tmp_path: Path) -> None:
    result(tmp_path, "gpu-now.json", digest=digest(tree))
    result(tmp_path, "gpu-before.json", digest="0" * 64)
    result(tmp_path, "gpu-unknown.json")
    result(tmp_path, "boot.json")
    assert stale(tmp_path, tree) == ["gpu-before.json", "gpu-unknown.json"]


def test_the_digest_covers_native_and_python_sources() -> None:
    suffixes = {path.suffix for path in sources(ROOT)}
    assert {".py", ".cpp", ".h"} <= suffixes
