"""Signals and ends of a guest, and what killed runs leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from support.guests import folders

from vcc.cache.errors import UsageError
from vcc.cache.process import Process
from vcc.engine.guest.child import run_child
from vcc.engine.guest.folder import LOCK, PREFIX, private_folder, sweep

WAITS = """
import os, signal, sys, time
def end(number, frame):
    print("got", number, flush=True)
    sys.exit(number)
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(one, end)
print("ready", os.getpid(), flush=True)
time.sleep(60)
"""
VCC = "from vcc.cli.main import main; main()"


def started(tmp_path: Path, code: str, **more: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", VCC, "run", "--", sys.executable, "-c", code]
    places = {"TMPDIR": str(tmp_path / "tmp"), "VCC_CACHE_DIR": str(tmp_path / "store")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env={**os.environ, **places}, **{**pipes, **more})


def ready(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    word, pid = process.stdout.readline().split()
    assert word == "ready"
    return int(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_that_is_sent_to_vcc_is_handed_on(tmp_path, number):
    process = started(tmp_path, WAITS, start_new_session=True)
    ready(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert out == f"got {number.value}\n", err
    assert process.returncode == number.value
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_the_terminal_sends_reaches_the_guest_once(tmp_path):
    """Ctrl-C goes to the whole group in the foreground of a terminal: a pair of pseudo ones."""
    count = WAITS.replace("sys.exit(number)", "pass").replace(
        "time.sleep(60)", "time.sleep(2); sys.exit(5)"
    )
    main, side = os.openpty()
    script = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    words = [sys.executable, "-c", VCC, "run", "--", sys.executable, "-c", count]
    script += f"os.execv(sys.executable, {words!r})"
    places = {"TMPDIR": str(tmp_path / "tmp"), "VCC_CACHE_DIR": str(tmp_path / "store")}
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        *(1 << 13, None, side, subprocess.PIPE, subprocess.PIPE),
        env={**os.environ, **places},
        text=True,
    )
    ready(process)
    os.write(main, b"\x03")
    out, err = process.communicate(timeout=60)
    assert out == "got 2\n", err
    assert process.returncode == 5
    os.close(main)
    os.close(side)


def test_a_program_starts_with_the_signals_of_a_fresh_process():
    code = (
        "import signal, sys\n"
        "blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "status = open('/proc/self/status').read()\n"
        "sys.exit(len(blocked))\n"
    )
    environment = dict(os.environ)
    assert run_child(sys.executable, [sys.executable, "-c", code], environment) == 0
    pipe = "kill -PIPE $$; exit 0"
    assert run_child("/bin/sh", ["sh", "-c", pipe], environment) == 128 + signal.SIGPIPE


def test_an_end_is_seen_where_another_thread_takes_the_signal():
    """Storage clients have threads that block nothing."""
    go = threading.Event()
    threads = [threading.Thread(target=go.wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        for code in range(5):
            words = ["sh", "-c", f"exit {code}"]
            assert run_child("/bin/sh", words, dict(os.environ)) == code
    finally:
        go.set()
        for thread in threads:
            thread.join()


def test_a_file_that_is_no_program_is_told(tmp_path):
    file = tmp_path / "x"
    file.write_text("no first line")
    file.chmod(0o755)
    with pytest.raises(UsageError, match="cannot start"):
        run_child(str(file), ["x"], {})


def test_a_folder_of_a_killed_run_is_swept_and_that_of_a_living_guest_stays(tmp_path):
    process = started(tmp_path, WAITS, start_new_session=True)
    guest = ready(process)
    process.kill()
    process.wait(30)
    assert len(folders()) == 1
    sweep()
    assert len(folders()) == 1, "the guest still runs in it"
    os.kill(guest, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while folders() and time.monotonic() < deadline:
        sweep()
        time.sleep(0.05)
    assert folders() == []


def test_folders_of_others_and_links_are_left_alone():
    gone = Process(*(getattr(Process.own(), name) for name in ("host", "boot")), 2**22 + 1, 1, 0)
    place = Path(tempfile.gettempdir())
    link = place / f"{PREFIX}{gone}.0123abcd"
    (place / "target").mkdir()
    link.symlink_to(place / "target")
    (place / f"{PREFIX}no-process").mkdir()
    with private_folder() as own:
        sweep()
        assert (own.path / LOCK).exists()
        assert own.path.stat().st_mode & 0o777 == 0o700
    assert {one.name for one in place.iterdir()} == {"target", link.name, f"{PREFIX}no-process"}
