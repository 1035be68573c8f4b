"""Hosts in an odd state: no /proc, a clock that was set, two builds at once, a second Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.builds import MODEL, Command
from support.mounts import can_mount, in_own_mounts
from support.processes import mark, marked, running, wait_for

RUN = ("run", "demo", "--prompt", "It is a truth", "--max-new-tokens", "4", "--json")
EAGER = ("--compile", "none")
BACK = "import time; now = time.time; time.time = lambda: now() - {seconds}; "
ENTRY = "from vcc.cli.main import main; main()"


@pytest.mark.root
def test_without_proc_what_needs_it_is_named_and_the_rest_works(
    spawn: Callable[..., Any], demo_shelf: Path, tmp_path: Path
) -> None:
    if why := can_mount():
        pytest.skip(why)
    store = shutil.copytree(demo_shelf, tmp_path / "store")

    def work() -> None:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/proc"], check=True)
        refused = spawn(*RUN, "--require-warm", store=store)
        assert refused.code == 1, refused.err
        error = refused.json["error"]
        assert "cannot be read from /proc/cpuinfo" in error["why"]
        assert error["hint"].startswith("mount /proc")
        built = spawn("compile", "demo", *EAGER, "--json", store=store)
        assert built.code == 0, built.err
        found = spawn(*RUN, *EAGER, "--require-warm", store=store)
        assert found.code == 0, found.err
        assert found.json["artifact"] == built.json["artifact"]
        assert spawn("inspect", "cache", store=store).code == 0

    assert in_own_mounts(work) == 0


@pytest.mark.parametrize("seconds", [10 * 365 * 86400, -10 * 365 * 86400], ids=["back", "ahead"])
def test_a_clock_that_was_set_changes_nothing(
    spawn: Callable[..., Any], demo_store: Path, seconds: int
) -> None:
    """E83: warm, no negative age, and a build made then is one of the two that are there."""
    code = BACK.format(seconds=seconds) + ENTRY
    warm = spawn(*RUN, "--require-warm", store=demo_store, code=code)
    assert warm.code == 0, warm.err
    assert spawn("compile", "demo", *EAGER, store=demo_store, code=code).code == 0
    for run in (ENTRY, code):
        rows = spawn("inspect", "cache", store=demo_store, code=run).out.splitlines()[1:]
        assert len(rows) == 2
        assert not any(word.startswith("-") for row in rows for word in row.split())
    again = spawn(*RUN, "--require-warm", store=demo_store)
    assert again.json["prompts"] == warm.json["prompts"]


def start(temp: Path, store: Path, name: str) -> subprocess.Popen[str]:
    """`vcc compile demo` of its own process group, as a terminal starts it."""
    temp.mkdir(parents=True, exist_ok=True)
    own = {"TMPDIR": str(temp), "VCC_CACHE_DIR": str(store), "VCC_TEST_MARK": name}
    return subprocess.Popen(
        [sys.executable, "-c", ENTRY, "compile", "demo", "--json"],
        env=os.environ | own,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize("pause", [0.0, 0.05], ids=["at once", "impatient"])
def test_a_second_ctrl_c_leaves_nothing_either(tmp_path: Path, pause: float) -> None:
    """A9: exit 130, no process, no folder, no entry."""
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    temp, store = tmp_path / "temp", tmp_path / "store"
    with mark() as name:
        process = start(temp, store, name)
        assert wait_for(lambda: running(name, "g++") or process.poll() is not None, 120)
        for _ in range(3):
            with suppress(ProcessLookupError):  # it has ended already
                os.killpg(process.pid, signal.SIGINT)
            wait_for(lambda: False, pause)
        out, err = process.communicate(timeout=60)
        assert wait_for(lambda: not marked(name), 10), marked(name)
    assert process.returncode == 130, err
    assert json.loads(out)["error"]["id"] == "INTERRUPTED"
    assert "Traceback" not in err
    assert list(temp.iterdir()) == []
    assert not list(store.glob("v1/refs/*/*"))


def test_two_builds_at_once_compile_once(tmp_path: Path) -> None:
    """D67 with the real compiler: one builds, the other says whom it waits for and takes it."""
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    temp, store = tmp_path / "temp", tmp_path / "store"
    (tmp_path / "small.py").write_text(MODEL)
    command = Command(tmp_path, store, temp)
    started = [command.start() for _ in range(2)]
    ended = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
    found = [json.loads(out) for out, _ in ended]
    assert found[0]["artifact"] == found[1]["artifact"]
    assert sorted(one["counters"]["compiles"] for one in found) == [0, 1]
    assert sorted(one["reused"] for one in found) == [False, True]
    assert list(temp.iterdir()) == []
    assert len(list(store.glob("v1/refs/*/*"))) == 1
