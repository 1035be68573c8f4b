"""One piece in one worker process: compile, check against the golden, write the results."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcc.cache.errors import (
    CompileError,
    ConfigError,
    DeviceError,
    StorageError,
    VccError,
    quoted,
)
from vcc.engine.compile.child import begin
from vcc.engine.compile.golden import Skipped, make_golden
from vcc.engine.compile.interface import CompilerInterface
from vcc.engine.compile.piece_code import PieceCode
from vcc.engine.config.environment import recorded_reads, use_build_folder, use_temporary_folder
from vcc.engine.native import die_with_parent
from vcc.engine.torch_shim import process
from vcc.engine.torch_shim.gpus import hide_gpus
from vcc.engine.types import CompiledPiece, Piece

ERRORS: Mapping[str, type[VccError]] = {one.id: one for one in (ConfigError, DeviceError)}
"""Errors of a worker that keep their kind, and with it their exit code."""

LEAST_ROOM = 1 << 20
"""Bytes free on a disk, below which a worker that failed did so for want of room."""

CODE, TABLE, GOLDEN, REPORT = "piece", "piece.json", "golden", "report.json"


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker does: the piece, its compiler and settings, and a folder of its own."""

    piece: Piece
    compiler: CompilerInterface
    options: Mapping[str, Any]
    folder: Path
    parent: int
    heavy: Any
    """A lock that lets one worker at a time hold the arguments of a golden in memory."""

    @property
    def code(self) -> Path:
        """The file of the piece's code."""
        return self.folder / f"{CODE}{self.compiler.suffix}"


def work(job: Job) -> None:
    """Body of a forked worker: never returns to the caller's code, always leaves a report."""
    begin()
    process.leave_parent_alone(job.folder / "log")
    hide_gpus()
    with suppress(DeviceError):  # without the native library the pool's clean-up has to do
        die_with_parent()
    if os.getppid() != job.parent:  # it ended before it could be watched
        process.end(1)
    try:
        report = _compile(job)
    except VccError as error:
        report = {"error": error.as_dict()}
    except BaseException as error:
        traceback.print_exc()
        report = {"error": _unexpected(job, error).as_dict()}
    _write_report(job, report)
    sys.stdout.flush()
    process.end(0)


def _write_report(job: Job, report: Mapping[str, Any]) -> None:
    """Whole or not at all: a full disk must not leave half a report."""
    half = job.folder / f"{REPORT}.half"
    half.write_text(json.dumps(report))
    half.replace(job.folder / REPORT)


def collect(job: Job, status: int) -> CompiledPiece:
    """The results that a finished worker left in its folder.

    Args:
        job: what it did.
        status: how the process ended; the negative number of the signal that killed it.

    Raises:
        CompileError: the worker failed or ended without a report.
        ConfigError, DeviceError: it refused an option, or lacks a tool.
        StorageError: the disk that it works on is full.
    """
    path = job.folder / REPORT
    if not path.exists():
        said = _tail(job.folder / "log")
        _check_room(job, said)
        raise CompileError(
            f"the worker for piece {job.piece.id[:12]} ended without a report",
            f"{_ending(status)}\n{said}".strip(),
            "try fewer workers: --jobs 1",
        )
    report = json.loads(path.read_text())
    if error := report.get("error"):
        _check_room(job, error["why"])
        kind = ERRORS.get(error["id"], CompileError)
        raise kind(error["what"], error["why"], error["hint"])
    return CompiledPiece(
        id=job.piece.id,
        library=job.code.read_bytes(),
        external_ops=_optional(job.folder / TABLE),
        golden=_optional(job.folder / GOLDEN),
        seconds=report["seconds"],
        notes=tuple(report["notes"]),
        reads=report["reads"],
        suffix=job.compiler.suffix,
    )


def _compile(job: Job) -> dict[str, Any]:
    start = time.perf_counter()
    use_build_folder(job.folder / "inductor")
    use_temporary_folder(job.folder)
    with recorded_reads() as reads:
        made = job.compiler.compile(job.piece, job.options, job.folder)
    _keep(made, job)
    with job.heavy:
        notes = _golden(job)
    return {"seconds": time.perf_counter() - start, "notes": notes, "reads": reads.as_dict()}


def _keep(made: PieceCode, job: Job) -> None:
    made.code.replace(job.code)
    if made.table is not None:
        made.table.replace(job.folder / TABLE)


def _golden(job: Job) -> list[str]:
    made = make_golden(job.piece, job.compiler.load(job.code))
    if isinstance(made, Skipped):
        return [f"no golden: {made.reason}"]
    (job.folder / GOLDEN).write_bytes(made.encode())
    return []


def _unexpected(job: Job, error: BaseException) -> CompileError:
    return CompileError(
        f"piece {job.piece.id[:12]} does not compile",
        quoted(error),
        "the log above ends with the compiler's own words; --keep DIR keeps the piece's source",
    )


def _check_room(job: Job, said: str) -> None:
    """What failed for want of room is no fault of the piece."""
    full, disk = os.strerror(errno.ENOSPC), shutil.disk_usage(job.folder)
    # Some file systems say nothing of their size.
    if full not in said and (disk.free >= LEAST_ROOM or not disk.total):
        return
    raise StorageError(
        f"there is no room to compile in {job.folder.parent}",
        f"{disk.free} bytes are free; the compiler said: {said or 'nothing'}",
        "set TMPDIR to a folder with more room, such as 1 GB",
    )


def _ending(status: int) -> str:
    if status < 0:
        name = signal.Signals(-status).name
        return f"it was ended by {name}, perhaps for want of memory"
    return f"it ended with status {status}"


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-1000:] if path.exists() else ""


def _optional(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
