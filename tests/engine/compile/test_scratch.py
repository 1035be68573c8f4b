"""A killed build leaves a folder that the next build removes; no other folder is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.builds import Command, compiler_that
from support.processes import mark, marked, running, wait_for

from vcc.cache.process import Process
from vcc.engine.compile.scratch import PREFIX, scratch, sweep


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def gone() -> Process:
    """A process that has ended."""
    code = "from vcc.cache.process import Process; print(Process.own())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = Process.parse(done.stdout.strip() + ".")
    assert found is not None
    return found


def made(folder: Path, owner: object) -> Path:
    """A folder as a build of `owner` leaves it."""
    made = folder / f"{PREFIX}{owner}.0123abcd"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "piece.cpp").write_text("int main;")
    return made


def test_the_folder_of_a_process_that_ended_is_removed(temp: Path, gone: Process) -> None:
    left = made(temp, gone)
    sweep()
    assert not left.exists()


def test_a_pid_that_was_used_again_is_another_process(temp: Path) -> None:
    left = made(temp, replace(Process.own(), start=Process.own().start - 1))
    sweep()
    assert not left.exists()


def test_the_folder_of_a_living_build_stays(temp: Path) -> None:
    with scratch() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        sweep()
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.parametrize(
    "change", [{"host": "elsewhere"}, {"boot": "0123"}, {"namespace": 1}], ids=str
)
def test_what_cannot_be_known_from_here_stays(temp: Path, gone: Process, change) -> None:
    left = made(temp, replace(gone, **change))
    sweep()
    assert left.is_dir()


def test_links_files_and_other_names_stay(temp: Path, gone: Process) -> None:
    target = temp / "target"
    target.mkdir()
    (target / "precious").write_text("")
    link = temp / f"{PREFIX}{gone}.01"
    link.symlink_to(target)
    file = temp / f"{PREFIX}{gone}.02"
    file.write_text("")
    other = temp / f"{PREFIX}oldname"
    other.mkdir()
    sweep()
    assert link.is_symlink()
    assert file.exists()
    assert other.is_dir()
    assert (target / "precious").exists()


def test_a_link_inside_is_removed_and_not_followed(temp: Path, gone: Process) -> None:
    (temp / "precious").mkdir()
    left = made(temp, gone)
    (left / "link").symlink_to(temp / "precious")
    sweep()
    assert not left.exists()
    assert (temp / "precious").is_dir()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes a folder of another user")
def test_the_folder_of_another_user_stays(temp: Path, gone: Process) -> None:
    left = made(temp, gone)
    os.chown(left, 65534, 65534)
    sweep()
    assert left.is_dir()


def test_a_temporary_folder_that_is_gone_stops_nothing(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    sweep()


def test_after_a_kill_the_next_build_removes_what_was_left(
    needs_compiler: None, model: Path, tmp_path: Path
) -> None:
    """SIGKILL while the compiler runs, from the command line, both times."""
    path = compiler_that("exec sleep 120", tmp_path / "bin")
    command = Command(model, tmp_path / "store", tmp_path / "temp")
    with mark() as name:
        process = command.start(PATH=path, VCC_TEST_MARK=name)
        assert wait_for(lambda: running(name, "sleep") or process.poll() is not None, 240)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert wait_for(lambda: not marked(name), 10), marked(name)
        left = list((tmp_path / "temp").glob(f"{PREFIX}*"))  # of the pieces, and of goldens
        assert any(any(folder.iterdir()) for folder in left)
    done = command.start("--compile", "none")
    out, err = done.communicate()
    assert done.returncode == 0, out + err
    assert list((tmp_path / "temp").glob("vcc-*")) == []
