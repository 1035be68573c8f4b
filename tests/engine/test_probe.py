"""What a file system can do is found out by doing it, and nothing is left behind."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess

import pytest

from vcc.engine import probe as module
from vcc.engine.probe import kind_of, probe


def test_a_local_disk_can_do_everything(tmp_path):
    found = probe(tmp_path)
    assert found.kind
    assert found.free > 0
    assert (found.locks, found.links) == ("", True)
    assert abs(found.skew_s) < 1
    assert list(tmp_path.iterdir()) == []


def test_locks_that_keep_nobody_out_are_found(tmp_path, monkeypatch):
    """As on some parallel file systems: flock says yes to everybody."""
    monkeypatch.setattr(fcntl, "flock", lambda fd, how: None)
    assert probe(tmp_path).locks == "a second process gets a lock that is held"


def test_a_file_system_without_locks_is_told_apart(tmp_path, monkeypatch):
    def refuse(fd, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert probe(tmp_path).locks.startswith("flock does not work here")


@pytest.mark.parametrize(("code", "said"), [(4, "cannot lock"), (1, "cannot lock"), (3, "")])
def test_what_the_second_process_says(tmp_path, monkeypatch, code, said):
    done = subprocess.CompletedProcess((), code)
    monkeypatch.setattr(module.subprocess, "run", lambda *a, **o: done)
    found = probe(tmp_path).locks
    assert said in found
    assert bool(said) == bool(found)


def test_a_second_process_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_TRY_LOCK", "import time; time.sleep(60)")
    monkeypatch.setattr(module, "PROCESS_S", 0.2)
    assert "waits for a lock" in probe(tmp_path).locks


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_another_clock_is_measured(tmp_path, monkeypatch, skew):
    real = module.time.time
    monkeypatch.setattr(module.time, "time", lambda: real() - skew)
    assert probe(tmp_path).skew_s == pytest.approx(skew, abs=2)


def test_no_hard_links_is_no_failure(tmp_path, monkeypatch):
    def refuse(*names):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert not probe(tmp_path).links


def test_bytes_that_do_not_come_back_are_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(module.Path, "read_bytes", lambda path: b"else")
    with pytest.raises(OSError, match="not what is read back"):
        probe(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_failure(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        probe(tmp_path / "none")


def test_the_type_is_that_of_the_innermost_mount(tmp_path):
    table = tmp_path / "mountinfo"
    home = str(tmp_path).replace(" ", "\\040")
    table.write_text(
        "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        f"30 22 0:50 / {home} rw - lustre server rw\n"
        f"31 30 0:51 / {home}/with\\040blank rw - nfs4 server:/x rw\n"
        "broken\n"
    )
    (tmp_path / "with blank").mkdir()
    assert kind_of(tmp_path / "with blank/x", table) == "nfs4"
    assert kind_of(tmp_path, table) == "lustre"
    assert kind_of(tmp_path / "with blanks", table) == "lustre"
    assert kind_of(tmp_path, tmp_path / "none") == ""


@pytest.mark.root
def test_a_real_tmpfs_is_told_by_name(tmp_path):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare to mount a tmpfs")
    import sys

    code = (
        "import sys; from pathlib import Path; from vcc.engine.probe import probe\n"
        "print(probe(Path(sys.argv[1])))\n"
    )
    shell = 'mount -t tmpfs none "$2" && exec "$0" -c "$1" "$2"'
    command = ["unshare", "-m", "sh", "-c", shell, sys.executable, code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "mount:" in done.stderr or "unshare" in done.stderr:
        pytest.skip("this system does not let file systems be mounted")
    assert "kind='tmpfs'" in done.stdout, done.stderr
    assert "locks=''" in done.stdout
