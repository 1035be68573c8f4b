"""Files of GPU tests run in processes of their own: shared among GPUs, timed, and judged."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.sources import ROOT

SCRIPT = ROOT / "tests" / "gpu" / "run_files.py"
GOOD = """
import os, pytest
pytestmark = pytest.mark.gpu

def test_one():
    assert os.environ.get("CUDA_VISIBLE_DEVICES") in ("0", "1")

def test_two():
    pytest.skip("not here")
"""
BAD = (
    GOOD
    + """
def test_three():
    assert False, "as it should"
"""
)
ALL = GOOD.replace('in ("0", "1")', "is None")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"good": GOOD, "bad": BAD, "visible": ALL, "other": GOOD}.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    return tmp_path


def files(folder: Path, *words: str) -> tuple[int, str]:
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, str(SCRIPT), "--folder", str(folder), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_what_fails_is_named_and_every_file_is_timed(folder: Path) -> None:
    code, said = files(folder, "--gpus", "2")
    assert code == 1
    assert "FAILED bad::test_three" in said
    assert "as it should" in said
    assert said.count("1 passed   0 failed   1 skipped") == 3
    assert "4 files in" in said


def test_some_files_are_chosen_by_name(folder: Path) -> None:
    code, said = files(folder, "--only", "good test_visible.py")
    assert code == 0, said
    assert "2 files in" in said


def test_a_name_that_is_no_file_is_refused(folder: Path) -> None:
    code, said = files(folder, "--only", "godo")
    assert code == 1
    assert "no tests called godo; there are bad, good, other, visible" in said


def test_a_file_that_dies_has_failed(folder: Path) -> None:
    (folder / "test_dead.py").write_text("import os\nos._exit(3)\n")
    code, said = files(folder, "--only", "dead")
    assert code == 1
    assert "FAILED dead: pytest ended with 3" in said


def test_files_without_an_outcome_have_failed_when_a_run_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import run_files

    done = run_files.Outcome("good", 1.0, 2, (), (), "")
    (left,) = run_files.without_end([Path("test_good.py"), Path("test_bad.py")], [done])
    assert (left.name, left.passed) == ("bad", 0)
    assert left.failed == ("bad: the run ended before it did",)


def test_a_run_that_is_ended_ends_its_files(folder: Path) -> None:
    """What stays on a device would be measured with what comes next."""
    (folder / "test_long.py").write_text(
        "import os, pathlib, time, pytest\npytestmark = pytest.mark.gpu\n"
        "def test_long():\n"
        "    pathlib.Path('pid').write_text(str(os.getpid()))\n    time.sleep(60)\n"
    )
    command = [sys.executable, str(SCRIPT), "--folder", str(folder), "--only", "long"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    file, until = folder / "pid", time.monotonic() + 30
    while not (file.exists() and file.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(10) == 143
    pid = int(file.read_text())
    while Path(f"/proc/{pid}/status").exists() and time.monotonic() < until:
        if "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
            return
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
