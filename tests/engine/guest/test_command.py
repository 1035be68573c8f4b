"""A guest's command: which Python will run it, and what it is called."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.fake_cuda import library

from vcc.cache.digest import Digest
from vcc.cache.errors import DeviceError, UsageError
from vcc.engine.guest.command import read_command
from vcc.engine.guest.identity import identity_of


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A PATH with a Python of its own on it."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)

    def program(name: str, text: str) -> str:
        file = tmp_path / "bin" / name
        file.write_text(text)
        file.chmod(0o755)
        return str(file)

    return program


def test_a_python_with_a_script(path, tmp_path):
    python = path("python3.12", "")
    (tmp_path / "train.py").write_text("x")
    found = read_command(["python3.12", "-X", "dev", "-u", "train.py", "--lr", "3"])
    assert (found.interpreter, found.assumed, found.name) == (python, False, "train.py")
    assert found.script == Digest.of(b"x").hex


def test_a_module_and_lines_of_code(path):
    path("python3", "")
    assert read_command(["python3", "-m", "pkg.main", "x"]).name == "pkg.main"
    assert read_command(["python3", "-m", "pkg.main"]).script == "none"
    assert read_command(["python3", "-c", "1"]).script == Digest.of(b"1").hex


@pytest.mark.parametrize(
    "first",
    [
        "#!{python}\n",
        "#!{python} -s\n",
        "#!/usr/bin/env python3.12\n",
        "#!/usr/bin/env -S python3.12 -u\n",
        "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_a_program_by_its_first_line(path, first):
    python = path("python3.12", "")
    text = first.format(python=python) + "print()\n"
    program = path("serve", text)
    found = read_command(["serve", "model"])
    assert (found.program, found.interpreter, found.assumed) == (program, python, False)
    assert (found.name, found.script) == ("serve", Digest.of(text.encode()).hex)


def test_a_python_behind_another_program(path):
    python = path("python3.12", "")
    found = read_command(["env", "A=b", "python3.12", "train.py"])
    assert (found.interpreter, found.name) == (python, "train.py")


def test_a_program_without_a_python_is_said_to_be_assumed(path):
    python = path("python3", "")
    path("run.sh", "#!/bin/sh\n")
    found = read_command(["run.sh"])
    assert (found.interpreter, found.assumed, found.name) == (python, True, "run.sh")


def test_a_program_that_is_not_there(path):
    with pytest.raises(UsageError, match="cannot run nosuch"):
        read_command(["nosuch"])


def test_another_python_says_itself_what_it_has(path):
    real = Path(sys.executable)
    path("python3", f'#!/bin/sh\nexec {real} "$@"\n')
    named = identity_of(read_command(["python3", "-c", "1"]), "a/b")
    own = identity_of(read_command([sys.executable, "-c", "1"]), "a/b")
    assert named.fields == own.fields
    assert own.fields["guest.name"] == "a_b"
    assert own.fields["version.torch"].startswith("2.")
    assert "guest.script" not in dict(own.base)


def test_a_python_that_does_not_start_is_told(path):
    path("python3", "#!/bin/sh\necho broken >&2; exit 3\n")
    with pytest.raises(DeviceError, match="broken"):
        identity_of(read_command(["python3", "-c", "1"]), None)


def test_gpus_are_in_the_request_and_asked_by_another_process(path, monkeypatch):
    monkeypatch.setenv("VCC_LIBCUDA", str(library()))
    fields = identity_of(read_command([sys.executable, "-c", "1"]), None).fields
    assert fields["host.gpus"].startswith("sm_")
    assert fields["host.driver"].isdigit()


def test_a_driver_that_fails_counts_as_no_gpu(path, monkeypatch):
    monkeypatch.setenv("VCC_LIBCUDA", "/no/such/library")
    fields = identity_of(read_command([sys.executable, "-c", "1"]), None).fields
    assert (fields["host.gpus"], fields["host.driver"]) == ("none", "none")
