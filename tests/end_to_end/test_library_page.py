"""The files that docs/library.md shows run, in its order, on the store of the command line."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import FENCE
from support.sources import ROOT

import vcc

PAGE = (ROOT / "docs" / "library.md").read_text()


def files() -> dict[str, str]:
    """Python blocks of the page by the name in their first line."""
    blocks = [body for language, body in FENCE.findall(PAGE) if language == "python"]
    return {body.splitlines()[0].removeprefix("# "): body for body in blocks}


def test_the_files_of_the_page_run(demo_store: Path, tmp_path: Path) -> None:
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    own = os.environ | {"VCC_CACHE_DIR": str(demo_store), "OMP_NUM_THREADS": "1"}
    said = {}
    for name in ("use_blocks.py", "use_decoder.py", "use_requests.py"):
        done = subprocess.run(
            [sys.executable, name],
            cwd=tmp_path,
            env=own,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"
        said[name] = done.stdout
    assert "pieces" in said["use_decoder.py"], "the stages are shown"
    assert "which I am sure" in said["use_decoder.py"], "and the answer"
    lengths = [len(ids) for ids in ast.literal_eval(said["use_requests.py"]).values()]
    assert lengths == [16, 4]


def test_every_file_of_the_page_is_python_and_known() -> None:
    assert list(files()) == [
        "blocks.py",
        "use_blocks.py",
        "use_decoder.py",
        "use_requests.py",
        "gpu.py",
    ]
    for text in files().values():
        ast.parse(text)


@pytest.mark.parametrize(
    "name", [line.split("`")[1] for line in PAGE.splitlines() if "| `vcc." in line]
)
def test_names_of_the_table_are_public(name: str) -> None:
    public = name.removeprefix("vcc.").partition("(")[0]
    assert getattr(vcc, public)
