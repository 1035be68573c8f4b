"""A GPU build in a process of its own: what it tells torch about a GPU ends with it.

The child is forked, so that nothing is serialised, before or after torch was imported. It reports
its events as lines of JSON through a pipe and leaves its result in a folder.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcc.cache.errors import (
    CompileError,
    ConfigError,
    DeviceError,
    ModelError,
    StorageError,
    VccError,
)
from vcc.engine.compile.child import begin, running
from vcc.engine.compile.forked import failure
from vcc.engine.compile.scratch import scratch
from vcc.engine.events import Events
from vcc.engine.graphs.planner.content import REPORT, GpuContent, read

if TYPE_CHECKING:
    from vcc.engine.request import Settled
    from vcc.engine.torch_shim.profiles import DeviceProfile

ERRORS: Mapping[str, type[VccError]] = {
    one.id: one for one in (ConfigError, DeviceError, ModelError, StorageError)
}
"""Errors of the child that keep their kind, and with it their exit code."""

FAILED, LOG = "failed.json", "log"

_FORK = get_context("fork")


def plan_in_child(settled: Settled, profile: DeviceProfile, events: Events) -> GpuContent:
    """Build a GPU step for a device that need not be there.

    Args:
        settled: the request.
        profile: the device.
        events: hears the child's stages, progress and notes.

    Raises:
        CompileError, ConfigError, DeviceError, ModelError: as the build; or the child ended
            without a result.
    """
    with scratch() as folder:
        with _child(settled, profile, folder) as (process, pipe):
            _pass_on(pipe, events)
            process.join()
        if (folder / REPORT).exists():
            return read(folder)
        raise _failure(folder, process.exitcode or 0)


@contextmanager
def _child(
    settled: Settled, profile: DeviceProfile, folder: Path
) -> Iterator[tuple[Any, Connection]]:
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_work, args=(settled, profile, folder, theirs, os.getpid()))
    with closing(ours), running(process):
        theirs.close()
        yield process, ours


def _pass_on(pipe: Connection, events: Events) -> None:
    """Tell the listener what the child says, until it closes the pipe."""
    with suppress(EOFError):
        while True:
            name, arguments = json.loads(pipe.recv_bytes())
            getattr(events, name)(*arguments)


class _Told:
    """The child's events, sent to the parent."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def _send(self, name: str, *arguments: object) -> None:
        self._pipe.send_bytes(json.dumps([name, arguments]).encode())

    def stage_started(self, stage: str, total: int = 0) -> None:
        """Send."""
        self._send("stage_started", stage, total)

    def stage_finished(self, stage: str, seconds: float) -> None:
        """Send."""
        self._send("stage_finished", stage, seconds)

    def progress(self, item: str, state: str) -> None:
        """Send."""
        self._send("progress", item, state)

    def note(self, reason: str) -> None:
        """Send."""
        self._send("note", reason)


def _work(
    settled: Settled, profile: DeviceProfile, folder: Path, pipe: Connection, parent: int
) -> None:
    """Body of the child: never returns to the caller's code, always leaves a result or a reason."""
    begin()
    from vcc.engine.config.environment import use_build_folder, use_temporary_folder
    from vcc.engine.native import die_with_parent

    use_build_folder(folder / "caches")
    use_temporary_folder(folder)  # torch and Triton leave files that nobody removes
    from vcc.engine.torch_shim.process import end, leave_parent_alone

    leave_parent_alone(folder / LOG)
    with suppress(DeviceError):  # without the native library the parent's clean-up has to do
        die_with_parent()
    if os.getppid() != parent:  # it ended before it could be watched
        end(1)
    try:
        _build(settled, profile, folder, pipe)
    except VccError as error:
        (folder / FAILED).write_text(json.dumps(error.as_dict()), encoding="utf-8")
    except BaseException as error:
        traceback.print_exc()
        found = failure(error, CompileError, "the model does not compile for a GPU")
        (folder / FAILED).write_text(json.dumps(found.as_dict()), encoding="utf-8")
    end(0)


def _build(settled: Settled, profile: DeviceProfile, folder: Path, pipe: Connection) -> None:
    from vcc.engine.config.environment import recorded_reads

    made = folder / "caches"
    made.mkdir(exist_ok=True)
    with recorded_reads() as reads:
        from vcc.engine.graphs.planner.build import Planning, plan
        from vcc.engine.graphs.planner.content import write

        content = plan(Planning(settled, profile, _Told(pipe)), made)
    write(replace(content, reads=reads.as_dict()), folder)


def _failure(folder: Path, status: int) -> VccError:
    if (folder / FAILED).exists():
        error = json.loads((folder / FAILED).read_text(encoding="utf-8"))
        kind = ERRORS.get(error["id"], CompileError)
        return kind(error["what"], error["why"], error["hint"])
    log = folder / LOG
    said = log.read_text(errors="replace")[-1000:] if log.exists() else ""
    ending = f"status {status}" if status >= 0 else signal.Signals(-status).name
    return CompileError(
        "the process that compiles for the GPU ended without a result",
        f"it ended with {ending}\n{said}".strip(),
    )
