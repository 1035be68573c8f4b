"""The ctypes door: what is found, what is refused, and that workers end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import vcc
from vcc.cache.errors import DeviceError
from vcc.engine import native

needs_abi = pytest.mark.skipif(native.library("vcc_abi") is None, reason="built without a compiler")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An install whose `_lib` folder is an empty one."""
    (tmp_path / "_lib").mkdir()
    monkeypatch.setattr(vcc, "__path__", [str(tmp_path)])
    native.abi.cache_clear()
    yield tmp_path / "_lib"
    native.abi.cache_clear()


@needs_abi
def test_the_abi_answers() -> None:
    assert native.abi().vcc_abi_version() == native.ABI_VERSION
    assert native.cpu_level() in (0, 2, 3, 4)


def test_without_the_library_the_error_says_what_to_install(elsewhere: Path) -> None:
    assert native.library("vcc_abi") is None
    with pytest.raises(DeviceError, match="not built") as caught:
        native.abi()
    assert "C++ compiler" in caught.value.hint


def test_a_library_that_is_no_library(elsewhere: Path) -> None:
    (elsewhere / "libvcc_abi.so").write_bytes(b"nothing")
    with pytest.raises(DeviceError, match="cannot load"):
        native.abi()


@needs_abi
def test_another_abi_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    native.abi.cache_clear()
    monkeypatch.setattr(native, "ABI_VERSION", 999)
    with pytest.raises(DeviceError, match="this vcc needs 999"):
        native.abi()
    native.abi.cache_clear()


@needs_abi
def test_a_child_ends_with_its_parent() -> None:
    """The parent is killed with SIGKILL, so nothing of it can tell the child."""
    child = "from vcc.engine import native; import time; native.die_with_parent(); "
    child += "print('ready', flush=True); time.sleep(60)"
    parent = (
        "import subprocess, sys, time\n"
        f"c = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "c.stdout.readline(); print(c.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    assert _ends(pid)


def _ends(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":  # ended; an init that does not reap is not ours to judge
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False
