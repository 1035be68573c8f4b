"""Kill matrix: one piece of work, ended by SIGKILL before each of its system calls in turn.

The work runs in a forked child that waits at a pipe until strace holds it, so a point costs no
start of an interpreter. strace counts calls by name, hence one sweep a name; it counts each thread
by itself, hence thread pools run their work in place. Only calls that change something are points:
between two of them the disk does not change, so that a kill before each of them, and after the
last, meets every state that there is.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CALLS = (
    "mkdir", "mkdirat", "write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "rename",
    "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir", "truncate",
    "ftruncate", "fallocate", "fchmod", "fchmodat", "chmod", "chown", "fchown", "fchownat",
    "symlink", "symlinkat", "utimensat", "copy_file_range", "sendfile", "flock",
)  # fmt: skip
ATTACH_S = 20.0
MAX_BYTES_SHOWN = 2000


class CannotTrace(Exception):
    """This system does not let one process trace another, or has no strace."""


@dataclass(frozen=True)
class Row:
    """A piece of work and what must hold wherever it was killed.

    Args:
        name: for messages.
        prepare: fills an empty folder with what is there before.
        act: the work, given the folder; runs in a child.
        check: asserts, given the folder after a kill; also makes the next command.
    """

    name: str
    prepare: Callable[[Path], object]
    act: Callable[[Path], object]
    check: Callable[[Path], object]


@dataclass
class Figures:
    """What a matrix did: points by the name of the call, and how many were killed there."""

    points: Counter[str] = field(default_factory=Counter)
    killed: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        each = ", ".join(f"{name} {count}" for name, count in sorted(self.points.items()))
        return f"{self.points.total()} points ({each}), {self.killed} killed, {self.seconds:.0f} s"


def run(row: Row, folder: Path, *, every: int = 1) -> Figures:
    """Kill the work of `row` at every `every`-th point, counted over all calls, and check.

    Args:
        row: what to do.
        folder: an empty folder; on a file system in memory a point is cheap.
        every: 1 takes all points.

    Raises:
        CannotTrace: strace cannot be used here.
        AssertionError: what had to hold did not, with the point.
    """
    start, figures = time.monotonic(), Figures()
    template = folder / "template"
    template.mkdir()
    row.prepare(template)
    at = 0
    for name, total in counted(row, _copy(template, folder / "count")).items():
        for when in range(1, total + 1):
            at += 1
            if at % every == 0:
                figures.points[name] += 1
                figures.killed += _point(row, _copy(template, folder / "point"), name, when)
    figures.seconds = time.monotonic() - start
    return figures


def counted(row: Row, place: Path) -> Mapping[str, int]:
    """How often the work calls what, by name; the work is done to its end."""
    names = ",".join(f"?{name}" for name in CALLS)
    code, trace = traced(lambda: row.act(place), ["-e", f"trace={names}"])
    assert code == 0, f"{row.name}: the work fails by itself\n{trace[-MAX_BYTES_SHOWN:]}"
    row.check(place)
    shutil.rmtree(place)
    return Counter(re.findall(r"^(?:\d+ +)?(\w+)\(", trace, re.MULTILINE))


def _point(row: Row, place: Path, name: str, when: int) -> bool:
    """Kill at one point and check; whether it was killed there."""
    inject = ["-e", f"trace={name}", "-e", f"inject={name}:signal=SIGKILL:when={when}"]
    code, trace = traced(lambda: row.act(place), inject)
    assert code in (0, -signal.SIGKILL), f"{row.name}: {code} at {name} {when}\n{trace}"
    try:
        row.check(place)
    except BaseException as error:
        raise AssertionError(f"{row.name}: killed at {name} number {when}: {error!r}") from error
    shutil.rmtree(place)
    return code == -signal.SIGKILL


def traced(work: Callable[[], object], options: list[str]) -> tuple[int, str]:
    """Run `work` in a child under strace; its exit status (negative: signal) and the trace.

    Args:
        work: what the child does; an exception is status 1.
        options: of strace: what to trace and to inject.

    Raises:
        CannotTrace: strace is missing or may not attach.
    """
    if shutil.which("strace") is None:
        raise CannotTrace("strace is not installed")
    with tempfile.TemporaryDirectory(prefix="vcc-trace-") as folder:
        trace = Path(folder) / "trace"
        pid, begin = _waiting_child(work)
        tracer = subprocess.Popen(
            ["strace", "-f", "-qqq", "-o", str(trace), *options, "-p", str(pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        attached = _until_attached(pid, tracer)
        os.write(begin, b"x")
        os.close(begin)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = tracer.communicate()[1].decode(errors="replace")
        if not attached:
            raise CannotTrace(f"strace cannot attach: {said[-300:]}")
        return code, trace.read_text(errors="replace")


def _waiting_child(work: Callable[[], object]) -> tuple[int, int]:
    """A child that begins when a byte comes through the pipe."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reader)
        return pid, writer
    code = 1
    try:
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        ThreadPoolExecutor.submit = _in_place  # type: ignore[method-assign]
        work()
        code = 0
    finally:
        os._exit(code)


def _in_place(pool: ThreadPoolExecutor, work: Callable, /, *rest: Any, **more: Any) -> Future:
    done: Future = Future()
    try:
        done.set_result(work(*rest, **more))
    except Exception as error:
        done.set_exception(error)
    return done


def _until_attached(pid: int, tracer: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + ATTACH_S
    while time.monotonic() < deadline and tracer.poll() is None:
        status = Path(f"/proc/{pid}/status").read_text()
        # Attached, and back in its read: strace has set up what it injects.
        if "TracerPid:\t0\n" not in status and "State:\tS" in status:
            return True
        time.sleep(0.002)
    return False


def _copy(template: Path, place: Path) -> Path:
    return Path(shutil.copytree(template, place, symlinks=True))


def files_of(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every regular file below `root` with its bytes: earlier entries must keep theirs."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path.relative_to(root)), path.read_bytes()
