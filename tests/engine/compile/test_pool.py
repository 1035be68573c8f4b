"""Worker processes: order, limits, failures by name, and that none outlives its build.

The compiler is a stand-in that the forked workers inherit, so nothing here needs g++.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.processes import mark, marked, running, wait_for
from torch import nn
from torch.fx import GraphModule, symbolic_trace

from vcc.cache.errors import CompileError, ConfigError, DeviceError
from vcc.engine.compile import worker
from vcc.engine.compile.golden import Skipped
from vcc.engine.compile.pool import compile_pieces, default_jobs
from vcc.engine.compile.scratch import scratch, undisturbed
from vcc.engine.torch_shim import aoti_runner, inductor
from vcc.engine.types import Piece

NAMES = ("aa", "bb", "cc", "dd")


def piece(name: str) -> Piece:
    graph: GraphModule = symbolic_trace(nn.Identity())
    return Piece(name * 32, graph, (), 0, (), "")


class Heard:
    """Events as a list."""

    def __init__(self) -> None:
        self.progressed: list[tuple[str, str]] = []
        self.notes: list[str] = []

    def stage_started(self, stage: str, total: int = 0) -> None: ...
    def stage_finished(self, stage: str, seconds: float) -> None: ...

    def progress(self, item: str, state: str) -> None:
        self.progressed.append((item[:2], state))

    def note(self, reason: str) -> None:
        self.notes.append(reason)


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An own place for temporary folders, which must be empty at the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.glob("vcc-build-*")) == []


@pytest.fixture
def compiler(
    temp: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[str], object]], None]:
    """Install a function of the piece's two letters as the compiler; what it returns is kept."""

    def install(body: Callable[[str], object]) -> None:
        def compile_library(graph: Any, arguments: Any, options: Any) -> list[Path]:
            folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parents[1]
            library = folder / "made.so"
            library.write_bytes(str(body(folder.name[:2])).encode())
            return [library]

        monkeypatch.setattr(inductor, "compile_library", compile_library)
        monkeypatch.setattr(aoti_runner, "open_piece", lambda path: None)
        monkeypatch.setattr(worker, "make_golden", lambda piece, run: Skipped("a stand-in"))

    return install


def compiled(jobs: int = 2, events: Heard | None = None) -> dict[str, bytes]:
    found = compile_pieces([piece(n) for n in NAMES], {}, jobs, events or Heard())
    return {one.id[:2]: one.library for one in found}


def test_results_come_in_the_order_of_the_pieces(compiler: Any) -> None:
    compiler(lambda name: (time.sleep(0.2 if name == "aa" else 0), name)[1])
    events = Heard()
    assert list(compiled(2, events).items()) == [(n, n.encode()) for n in NAMES]
    assert [s for n, s in events.progressed if n == "aa"] == ["queued", "running", "done"]
    assert events.notes == [f"piece {n * 6}: no golden: a stand-in" for n, _ in done(events)]


def done(events: Heard) -> list[tuple[str, str]]:
    return [(name, state) for name, state in events.progressed if state == "done"]


@pytest.mark.parametrize("jobs", [1, 2, 4, 99])
def test_at_most_so_many_workers_at_a_time(compiler: Any, jobs: int) -> None:
    compiler(lambda name: time.sleep(0.05))
    events = Heard()
    compiled(jobs, events)
    now = most = 0
    for _, state in events.progressed:
        now += {"running": 1, "done": -1}.get(state, 0)
        most = max(most, now)
    assert most == min(jobs, len(NAMES))


def test_nothing_to_compile(temp: Path) -> None:
    assert compile_pieces([], {}, 2, Heard()) == ()
    assert default_jobs(()) >= 1


def test_a_worker_has_a_process_group_and_one_thread(compiler: Any) -> None:
    compiler(lambda name: (os.getpgrp() == os.getpid(), torch.get_num_threads()))
    assert set(compiled().values()) == {b"(True, 1)"}
    assert torch.get_num_threads() >= 1


def fail(error: BaseException) -> Callable[[str], object]:
    def body(name: str) -> object:
        if name == "bb":
            raise error
        return name

    return body


def test_an_error_of_a_worker_is_raised_with_its_words(compiler: Any) -> None:
    compiler(fail(CompileError("piece is odd", "so it says", "even it out")))
    events = Heard()
    with pytest.raises(CompileError, match="piece is odd") as caught:
        compiled(1, events)
    assert (caught.value.why, caught.value.hint) == ("so it says", "even it out")
    assert ("bb", "failed") in events.progressed
    assert ("cc", "running") not in events.progressed, "nothing is started after a failure"


@pytest.mark.parametrize("kind", [ConfigError, DeviceError])
def test_an_error_keeps_its_kind_and_exit_code(compiler: Any, kind: type[Exception]) -> None:
    compiler(fail(kind("no option of that name")))
    with pytest.raises(kind, match="no option"):
        compiled()


def test_an_unexpected_error_names_the_piece_and_the_kind(compiler: Any) -> None:
    compiler(fail(ZeroDivisionError("by nothing")))
    with pytest.raises(CompileError, match="piece bbbbbbbbbbbb does not compile") as caught:
        compiled()
    assert "ZeroDivisionError: by nothing" in caught.value.why
    assert "--keep" in caught.value.hint


def test_a_worker_that_is_killed_is_told_with_its_last_words(compiler: Any) -> None:
    def body(name: str) -> object:
        if name == "bb":
            os.write(2, b"cc1plus: out of memory allocating 65536 bytes\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return name

    compiler(body)
    with pytest.raises(CompileError, match="ended without a report") as caught:
        compiled()
    assert "SIGKILL" in caught.value.why
    assert "out of memory allocating" in caught.value.why
    assert "--jobs 1" in caught.value.hint


def test_a_worker_that_leaves_on_its_own_is_told(compiler: Any) -> None:
    compiler(lambda name: os._exit(3))
    with pytest.raises(CompileError, match="status 3"):
        compiled()


def test_half_a_report_is_no_report(compiler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full while the report is written."""
    compiler(lambda name: name)
    monkeypatch.setattr(Path, "replace", lambda self, to: os._exit(28))
    with pytest.raises(CompileError, match="status 28"):
        compiled()


def start_sleeper(name: str) -> None:
    """What Inductor does: run a compiler and wait for it."""
    subprocess.run(["sleep", "60"], check=True)


def test_the_compilers_of_other_workers_end_with_a_failure(
    compiler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mark() as name:
        monkeypatch.setenv("VCC_TEST_MARK", name)

        def body(piece: str) -> object:
            if piece == "bb":
                assert wait_for(lambda: running(name, "sleep"))
                raise CompileError("enough")
            return start_sleeper(piece)

        compiler(body)
        with pytest.raises(CompileError, match="enough"):
            compiled(2)
        assert wait_for(lambda: not marked(name), 5)


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGINT, signal.SIGINT]])
def test_an_interrupt_ends_workers_and_compilers(
    compiler: Any, monkeypatch: pytest.MonkeyPatch, signals: list[int]
) -> None:
    """A7, A9: Ctrl-C, once and impatiently."""
    with mark() as name:
        monkeypatch.setenv("VCC_TEST_MARK", name)
        compiler(start_sleeper)
        helper = (
            "import os, time; from support.processes import running, wait_for\n"
            f"wait_for(lambda: running({name!r}, 'sleep') == 2)\n"
            f"[(os.kill({os.getpid()}, s), time.sleep(0.002)) for s in {[int(s) for s in signals]}]"
        )
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
        clean = {**os.environ, "VCC_TEST_MARK": ""}
        with (
            subprocess.Popen([sys.executable, "-c", helper], env=clean) as killer,
            pytest.raises(KeyboardInterrupt),
        ):
            compile_and_wait(killer)
        assert wait_for(lambda: not marked(name), 5)


def compile_and_wait(killer: subprocess.Popen[bytes]) -> None:
    try:
        compiled(2)
    finally:
        killer.wait()  # the second signal may come as late as here


PARENT = """
import os, subprocess, sys
from pathlib import Path
from torch import nn
from torch.fx import symbolic_trace
from vcc.engine.compile.pool import compile_pieces
from vcc.engine.events import NullEvents
from vcc.engine.torch_shim import inductor
from vcc.engine.types import Piece

def compiler(graph, arguments, options):
    print("compiling", flush=True)
    subprocess.run(["sleep", "60"])

inductor.compile_library = compiler
piece = Piece("aa" * 32, symbolic_trace(nn.Identity()), (), 0, (), "")
compile_pieces([piece], {}, 1, NullEvents())
"""


def test_a_killed_parent_takes_workers_and_compilers_along(tmp_path: Path) -> None:
    """A11: SIGKILL runs no clean-up; the kernel's parent-death signal ends the worker's group."""
    with mark() as name:
        path = os.pathsep.join(p for p in sys.path if p)
        env = {**os.environ, "VCC_TEST_MARK": name, "TMPDIR": str(tmp_path), "PYTHONPATH": path}
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(PARENT)], env=env) as parent:
            assert wait_for(lambda: running(name, "sleep"))
            assert len(marked(name)) == 3
            parent.kill()
        assert wait_for(lambda: not marked(name), 5), marked(name)


def test_a_scratch_folder_goes_however_the_body_ends(temp: Path) -> None:
    with pytest.raises(KeyboardInterrupt), scratch() as folder:  # noqa: PT012
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("x")
        raise KeyboardInterrupt
    assert not folder.exists()


def test_signals_are_held_and_not_lost(temp: Path) -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), undisturbed():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        steps.append("went on")
    assert steps == ["went on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_signal_stays_ignored(temp: Path) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with undisturbed():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)
