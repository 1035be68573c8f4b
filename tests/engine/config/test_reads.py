"""Reads of the environment are noted by name and reader, wherever the object is held."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

from vcc.engine.config.reads import Reads, recorded

SOURCE = """
import os
from os import environ, getenv
import tempfile, shutil

def by_item(): return environ["VCC_TEST_ONE"]
def by_get(): return os.environ.get("VCC_TEST_ONE")
def by_getenv(): return getenv("VCC_TEST_ONE")
def by_in(): return "VCC_TEST_ONE" in environ
def by_default(): return environ.setdefault("VCC_TEST_ONE", "x")
def through_the_library(): return os.path.expandvars("$VCC_TEST_ONE")

def copied():
    return environ.copy(), dict(environ), {**environ}, list(environ.items()), list(environ.values())
"""
WAYS = ("by_item", "by_get", "by_getenv", "by_in", "by_default")


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of somebody else's package."""
    monkeypatch.setenv("VCC_TEST_ONE", "1")
    module = ModuleType("foreign.part")
    exec(SOURCE, vars(module))
    return module


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_read_is_seen_with_the_package_that_reads(other: ModuleType, way: str) -> None:
    reads = Reads()
    with recorded(os.environ, reads):
        getattr(other, way)()
    assert reads.as_dict() == {"VCC_TEST_ONE": ["foreign"]}
    assert reads.by(["foreign"]) == ("VCC_TEST_ONE",)
    assert reads.by(["another"]) == ()


def test_a_variable_that_is_not_set_is_seen_too(other: ModuleType) -> None:
    os.environ.pop("VCC_TEST_ONE")
    reads = Reads()
    with recorded(os.environ, reads), pytest.raises(KeyError):
        other.by_item()
    assert list(reads.as_dict()) == ["VCC_TEST_ONE"]


def test_the_library_reads_for_who_called_it() -> None:
    namespace = {"__name__": "foreign.part"}
    exec("import tempfile\ndef where(): return tempfile._candidate_tempdir_list()", namespace)
    reads = Reads()
    with recorded(os.environ, reads):
        namespace["where"]()  # type: ignore[operator]
    assert reads.as_dict()["TMPDIR"] == ["foreign"]


def test_a_copy_for_a_child_process_is_no_read(other: ModuleType) -> None:
    before, reads = dict(os.environ), Reads()
    with recorded(os.environ, reads):
        copies = other.copied()
        subprocess.run([sys.executable, "-c", ""], check=True)
    assert all(dict(copy) == before for copy in copies[:4])
    assert copies[4] == list(before.values())
    assert "VCC_TEST_ONE" not in reads.found


def test_a_read_after_names_were_listed_is_seen(other: ModuleType) -> None:
    reads = Reads()
    with recorded(os.environ, reads):
        assert "VCC_TEST_ONE" in set(os.environ.keys() - {"HOME"})
        for name in os.environ:
            assert name
        last = [name for name in os.environ.keys()][-1]  # noqa: C416, SIM118
        other.environ[last]
    assert list(reads.found) == [last]


def test_nothing_is_seen_before_and_after(other: ModuleType) -> None:
    kind, reads = type(os.environ), Reads()
    with pytest.raises(ZeroDivisionError), recorded(os.environ, reads):
        raise ZeroDivisionError
    other.by_get()
    assert type(os.environ) is kind
    assert reads.as_dict() == {}


def test_writes_reach_the_environment_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(os.environ, Reads()):
        monkeypatch.setenv("VCC_TEST_TWO", "2")
        done = subprocess.run(
            [sys.executable, "-c", "import os; print(os.environ['VCC_TEST_TWO'])"],
            capture_output=True,
            text=True,
        )
    assert done.stdout.strip() == "2"


def test_a_forked_process_records_and_its_reads_are_merged(other: ModuleType) -> None:
    reads, read_end, write_end = Reads(), *os.pipe()
    with recorded(os.environ, reads):
        pid = os.fork()
        if pid == 0:
            other.by_get()
            os.write(write_end, ",".join(reads.found).encode())
            os._exit(0)
        os.waitpid(pid, 0)
    assert "VCC_TEST_ONE" not in reads.found
    reads.merge({name: ["foreign"] for name in os.read(read_end, 999).decode().split(",")})
    assert reads.by(["foreign"]) == ("VCC_TEST_ONE",)
    os.close(read_end)
    os.close(write_end)
