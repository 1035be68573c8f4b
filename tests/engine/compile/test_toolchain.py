"""Finding the C++ compiler: the usual names, CXX, and every way in which there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vcc.cache.errors import DeviceError
from vcc.engine.compile.toolchain import Compiler, compiler_options, find_compiler


def put(folder: Path, name: str, body: str) -> Path:
    """A compiler that is a shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of one empty folder, and no CXX."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_gpp_is_taken_before_clang(only: Path) -> None:
    put(only, "clang++", "echo 17.0.1")
    assert find_compiler() == Compiler("clang++", "17.0.1")
    put(only, "g++", "echo 12.2.0")
    assert find_compiler() == Compiler("g++", "12.2.0")


def test_cxx_is_taken_by_name_and_by_path(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(only, "g++", "echo 12.2.0")
    put(only, "my-g++", "echo 9")
    monkeypatch.setenv("CXX", "my-g++")
    assert find_compiler() == Compiler("my-g++", "9")
    elsewhere = put(only.parent / "opt", "c++-13", "echo 13.1.0")
    monkeypatch.setenv("CXX", str(elsewhere))
    assert find_compiler() == Compiler("c++-13", "13.1.0"), "keys hold no paths"


def test_without_a_compiler_the_error_says_what_is_missing(only: Path) -> None:
    with pytest.raises(DeviceError, match=r"g\+\+ and clang\+\+ not found") as caught:
        find_compiler()
    assert int(caught.value.exit) == 3
    assert "install" in caught.value.hint
    assert "--compile none" in caught.value.hint


def test_a_cxx_that_is_not_there_is_named(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(only, "g++", "echo 12.2.0")
    monkeypatch.setenv("CXX", "/opt/none/g++")
    with pytest.raises(DeviceError, match="/opt/none/g"):
        find_compiler()


@pytest.mark.parametrize("body", ["echo broken >&2; exit 1", "kill -9 $$"])
def test_a_compiler_that_does_not_answer_is_refused(only: Path, body: str) -> None:
    put(only, "g++", body)
    with pytest.raises(DeviceError, match="does not work") as caught:
        find_compiler()
    assert re.search("broken|SIGKILL", caught.value.why)
    assert "CXX" in caught.value.hint


def test_a_compiler_that_cannot_be_started_is_refused(only: Path) -> None:
    path = put(only, "g++", "")
    path.write_text("#!/no/such/interpreter\n")
    with pytest.raises(DeviceError, match="does not work"):
        find_compiler()


def test_inductor_is_told_of_a_compiler_it_would_not_find(
    only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiler_options("g++ 12.2.0") == {}
    assert compiler_options("clang++ 17.0.1") == {"cpp.cxx": (None, "clang++")}
    monkeypatch.setenv("CXX", "clang++")
    assert compiler_options("clang++ 17.0.1") == {}, "Inductor reads CXX itself"
