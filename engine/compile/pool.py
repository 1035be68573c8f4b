"""Worker processes: each compiles one piece; all end when the build ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from vcc.engine.compile.child import kill
from vcc.engine.compile.golden import golden_bytes
from vcc.engine.compile.interface import COMPILERS, CompilerInterface
from vcc.engine.compile.scratch import scratch, undisturbed
from vcc.engine.compile.worker import Job, collect, work
from vcc.engine.config.modes import Backend
from vcc.engine.events import Events
from vcc.engine.types import CompiledPiece, Piece

# Forked, so that a worker has torch, Inductor and the graph at once and nothing is serialised.
_FORK = get_context("fork")


def compile_pieces(
    pieces: Sequence[Piece],
    options: Mapping[str, Any],
    jobs: int,
    events: Events,
    compiler: CompilerInterface = COMPILERS[Backend.INDUCTOR],
) -> tuple[CompiledPiece, ...]:
    """Compile each piece in a worker, at most `jobs` at a time.

    Args:
        pieces: unique pieces.
        options: compiler settings by the user.
        jobs: workers at a time; at least 1.
        events: hears the state of each piece under its id.
        compiler: makes the code.

    Raises:
        CompileError: of the first piece that failed; the other workers are ended.
    """
    heavy = _FORK.Lock()
    with scratch() as folder, _workers() as running:
        waiting = [_job(piece, compiler, options, folder, heavy) for piece in pieces]
        done: dict[str, CompiledPiece] = {}
        for piece in pieces:
            events.progress(piece.id, "queued")
        while waiting or running:
            while waiting and len(running) < jobs:
                job = waiting.pop(0)
                _start(job, running)
                events.progress(job.piece.id, "running")
            for process in _ended(running):
                job = running.pop(process)
                done[job.piece.id] = _finish(job, process.exitcode or 0, events)
        return tuple(done[piece.id] for piece in pieces)


LIGHT = 256 << 20
"""Bytes of a golden below which one worker more than processors costs no memory to speak of."""


def default_jobs(pieces: Sequence[Piece]) -> int:
    """Workers for these pieces: one a processor.

    Where that would leave a single light piece for a round of its own, with the other processors
    idle, it starts with the rest: a decoder's three pieces on two processors take a quarter less.
    """
    processors = len(os.sched_getaffinity(0))
    light = all(golden_bytes(piece) <= LIGHT for piece in pieces)
    return processors + 1 if light and len(pieces) == processors + 1 else processors


def _job(
    piece: Piece, compiler: CompilerInterface, options: Mapping[str, Any], root: Path, heavy: Any
) -> Job:
    folder = root / piece.id[:16]
    folder.mkdir()
    return Job(piece, compiler, options, folder, os.getpid(), heavy)


def _start(job: Job, running: dict[BaseProcess, Job]) -> None:
    process = _FORK.Process(target=work, args=(job,), name=f"vcc-{job.piece.id[:8]}")
    with undisturbed():  # a signal must not come between the start and who ends it
        process.start()
        running[process] = job


def _ended(running: Mapping[BaseProcess, Job]) -> list[BaseProcess]:
    ready = connection.wait([process.sentinel for process in running])
    ended = [process for process in running if process.sentinel in ready]
    for process in ended:
        process.join()
    return ended


def _finish(job: Job, status: int, events: Events) -> CompiledPiece:
    try:
        piece = collect(job, status)
    except BaseException:
        events.progress(job.piece.id, "failed")
        raise
    events.progress(job.piece.id, "done")
    for note in piece.notes:
        events.note(f"piece {piece.id[:12]}: {note}")
    return piece


@contextmanager
def _workers() -> Iterator[dict[BaseProcess, Job]]:
    running: dict[BaseProcess, Job] = {}
    try:
        yield running
    finally:
        with undisturbed():
            for process in running:
                kill(process)
            for process in running:
                process.join()
