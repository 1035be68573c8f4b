"""A build that is ended while its compiler runs leaves nothing, and the next one is fine."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from support.builds import Command, Left, compiler_that, listing

from vcc.cache.loaded import Loaded

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.mark.parametrize("number", CODES)
def test_the_exit_code_and_the_error_name_what_happened(
    interrupted: dict[int, Left], number: int
) -> None:
    """A7, A8."""
    found = interrupted[number]
    assert found.code == CODES[number], found.err
    error = json.loads(found.out)["error"]
    assert error["exit"] == CODES[number]
    assert error["id"] == ("INTERRUPTED" if number == signal.SIGINT else "TERMINATED")
    assert "Traceback" not in found.err


@pytest.mark.parametrize("number", CODES)
def test_no_process_no_folder_and_no_entry_is_left(
    interrupted: dict[int, Left], number: int
) -> None:
    found = interrupted[number]
    assert found.processes == {}
    assert found.temp == []
    assert [name for name in found.store if not name.startswith("v1/locks/")] == []


def test_the_next_build_in_the_same_store_is_fine(builds: tuple[Loaded, Loaded]) -> None:
    assert builds[0].manifest.info["pieces"][0]["bytes"] > 0
    builds[0].read_all()


def test_without_a_compiler_the_command_says_what_is_missing(model: Path, tmp_path: Path) -> None:
    """PATH without g++: nothing is traced, the exit code is that of the toolchain."""
    (tmp_path / "bin").mkdir()
    command = Command(model, tmp_path / "store", tmp_path / "temp")
    process = command.start(PATH=str(tmp_path / "bin"), CXX="")
    out, err = process.communicate()
    error = json.loads(out)["error"]
    assert (process.returncode, error["id"], error["exit"]) == (3, "DEVICE", 3), err
    assert "g++ and clang++ not found on PATH" in error["why"]
    assert "apt install" in error["hint"]
    assert listing(tmp_path / "temp") == []


def test_a_compiler_that_fails_is_quoted(model: Path, tmp_path: Path, needs_compiler: None) -> None:
    path = compiler_that('echo "fatal: wafer too hot" >&2; exit 4', tmp_path / ("long" * 40))
    command = Command(model, tmp_path / "store", tmp_path / "temp")
    process = command.start(PATH=path)
    out, _ = process.communicate()
    error = json.loads(out)["error"]
    assert (process.returncode, error["id"]) == (8, "COMPILE")
    assert "does not compile" in error["what"]
    assert "wafer too hot" in error["why"]
    assert listing(tmp_path / "temp") == []
