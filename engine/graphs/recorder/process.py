"""Record a model: three processes capture, this one joins, a fourth without torch proves it.

The processes that capture are forked, so that nothing is serialised; each watches the driver
through CUPTI and ends when it is done, because that watching slows every later launch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcc.cache.errors import (
    CompileError,
    ConfigError,
    DeviceError,
    GraphError,
    ModelError,
    VccError,
)
from vcc.engine.compile.child import begin, running
from vcc.engine.compile.forked import failure
from vcc.engine.compile.scratch import scratch
from vcc.engine.events import Events
from vcc.engine.graphs.recorder.addresses import AGAIN, FIRST, NAMES, REPORT, SECOND, Addresses
from vcc.engine.graphs.recorder.check_process import RECORDING, RESULT
from vcc.engine.graphs.recorder.plan import Recording
from vcc.engine.graphs.recorder.tables import Tables, tables_of

if TYPE_CHECKING:
    from vcc.engine.request import Settled
    from vcc.engine.torch_shim.profiles import DeviceProfile

FAILED, LOG, CONSTANTS = "failed.json", "log", "constant"
LONGEST = 1800.0
"""Seconds that a proof may take: a kernel that waits for what nobody writes takes them all."""

TOLD = 5
"""Words that a refusal names at most."""

CHECKER = "vcc.engine.graphs.recorder.check_process"

ERRORS: dict[str, type[VccError]] = {
    one.id: one for one in (CompileError, ConfigError, DeviceError, GraphError, ModelError)
}

_FORK = get_context("fork")


def record_model(settled: Settled, profile: DeviceProfile, events: Events) -> Tables:
    """Blobs of a recorded artifact: tables, cubins, constants; proven before this returns.

    Args:
        settled: the request, for the GPU of this machine.
        profile: that GPU.
        events: who is told.

    Raises:
        DeviceError: no GPU, no CUPTI, out of memory.
        GraphError: a graph that cannot be moved, or whose replay differs; named.
        ConfigError, ModelError: the model cannot be recorded.
    """
    with scratch() as folder:
        events.stage_started("capture", len(NAMES))
        for name in NAMES:
            events.progress(f"capture {name}", "running")
            (folder / name).mkdir()
            _capture_apart(settled, profile, folder / name)
            events.progress(f"capture {name}", "done")
        recording = Recording.parse((folder / FIRST / RECORDING).read_text("utf-8"))
        tables = tables_of(recording, (folder / FIRST, folder / SECOND, folder / AGAIN))
        prove(recording, tables, folder / FIRST)
        constants = _constants(recording, folder / FIRST)
        return replace(tables, blobs={**tables.blobs, **constants})


def prove(recording: Recording, tables: Tables, folder: Path, ordinal: int = 0) -> dict[str, Any]:
    """Replay every descriptor in a fresh process without torch; what it measured.

    Args:
        recording: what was recorded.
        tables: its tables.
        folder: the first capture's, with cubins, constants and answers.
        ordinal: the device.

    Raises:
        GraphError: an output differs from torch's own graph, or a table does not run.
    """
    for descriptor in recording.descriptors:
        (folder / f"{descriptor.file}.table").write_bytes(tables.blobs[descriptor.blob])
    said = _checked(folder, ordinal)
    result = folder / RESULT
    if not result.is_file():
        raise GraphError("the recording could not be checked", said)
    found: dict[str, Any] = json.loads(result.read_text("utf-8"))
    if "error" in found:
        error = _error(found["error"])
        raise type(error)(error.what, "; ".join((error.why, *_zeroed(tables))), error.hint)
    if found["wrong"]:
        raise GraphError(
            "a recorded graph does not give what the model gave",
            "; ".join((*found["wrong"][:5], *_zeroed(tables))),
            "the model reads memory that it does not own or did not write; use --compile vcc",
        )
    return found


def _checked(folder: Path, ordinal: int) -> str:
    """Run the checker, and say how it ended."""
    command = [sys.executable, "-m", CHECKER, str(folder), str(ordinal)]
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    try:
        done = subprocess.run(command, **streams, check=False, timeout=LONGEST)
    except subprocess.TimeoutExpired as error:
        raise GraphError(
            "a recorded graph does not end",
            f"its replay was stopped after {LONGEST:.0f} s",
            "it waits for a value in memory that the model did not write; use --compile vcc",
        ) from error
    return f"{done.returncode}: {done.stderr.decode(errors='replace')[-500:]}"


def _zeroed(tables: Tables) -> tuple[str, ...]:
    """Words that a replay can be wrong by."""
    more = len(tables.unsteady) - TOLD
    return (*tables.unsteady[:TOLD], *((f"and {more} more words",) if more > 0 else ()))


def _capture_apart(settled: Settled, profile: DeviceProfile, folder: Path) -> None:
    process = _FORK.Process(target=_work, args=(settled, profile, folder, os.getpid()))
    with running(process):  # an interrupted build leaves no process on the GPU
        process.join()
    if (folder / REPORT).exists():
        return
    if (folder / FAILED).exists():
        raise _error(json.loads((folder / FAILED).read_text("utf-8")))
    said = (folder / LOG).read_text(errors="replace")[-800:] if (folder / LOG).exists() else ""
    raise GraphError("a process that captures ended early", f"{process.exitcode}: {said}")


def _work(settled: Settled, profile: DeviceProfile, folder: Path, parent: int) -> None:
    """Body of a capturing child: leaves a report, or the reason why not, and ends the process."""
    begin()
    from vcc.engine.config.environment import use_build_folder
    from vcc.engine.graphs.recorder.calls import watch
    from vcc.engine.graphs.recorder.spread import on_spread_stack, spread_process
    from vcc.engine.native import die_with_parent

    use_build_folder(folder.parent / "caches")  # one compilation serves all captures
    code = 1
    try:
        spread_process(folder.name)
        _need_driver()
        watch()  # before torch loads any kernel
        from vcc.engine.torch_shim.process import leave_parent_alone

        leave_parent_alone(folder / LOG)
        with suppress(DeviceError):
            die_with_parent()
        if os.getppid() == parent:
            on_spread_stack(folder.name, partial(_capture, settled, profile, folder))
            code = 0
    except VccError as error:
        (folder / FAILED).write_text(json.dumps(error.as_dict()), encoding="utf-8")
    except BaseException as error:
        traceback.print_exc()
        found = failure(error, GraphError, "the model could not be recorded")
        (folder / FAILED).write_text(json.dumps(found.as_dict()), encoding="utf-8")
    os._exit(code)


def _need_driver() -> None:
    from vcc.engine.graphs.recorder.calls import open_driver
    from vcc.engine.refusals import no_recording

    try:
        open_driver()
    except DeviceError as error:
        raise no_recording(str(error)) from error


def _capture(settled: Settled, profile: DeviceProfile, folder: Path) -> None:
    from vcc.engine.graphs.recorder.capture import capture, require_device
    from vcc.engine.graphs.recorder.check_process import digest_of
    from vcc.engine.graphs.recorder.subjects import subject_of

    require_device(profile.target)
    subject = subject_of(settled, profile)
    (folder / RECORDING).write_text(subject.recording.text(), encoding="utf-8")
    (folder / CONSTANTS).mkdir()
    for name, data in subject.constants.items():
        (folder / CONSTANTS / digest_of(name)).write_bytes(data.tobytes())
    is_first = folder.name == FIRST
    first = None if is_first else Addresses.of_report(folder.parent / FIRST / REPORT)
    capture(subject, folder.name, folder, first, answers=is_first)


def _constants(recording: Recording, folder: Path) -> dict[str, bytes]:
    from vcc.engine.graphs.recorder.check_process import digest_of
    from vcc.engine.graphs.table.types import Role

    return {
        f"constant/{slot.name}": (folder / CONSTANTS / digest_of(slot.name)).read_bytes()
        for slot in recording.weights
        if slot.role is Role.CONSTANT
    }


def _error(found: dict[str, Any]) -> VccError:
    kind = ERRORS.get(found["id"], GraphError)
    return kind(found["what"], found["why"], found["hint"])
