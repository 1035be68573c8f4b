"""A worker that failed on a full disk: a storage error with the folder, not a piece's fault."""

from __future__ import annotations

import json
import os
import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vcc.cache.errors import CompileError, StorageError
from vcc.engine.compile import worker

FULL = "OSError: [Errno 28] No space left on device"
Usage = namedtuple("Usage", "total used free")


def job(folder: Path) -> Any:
    compiler: Any = SimpleNamespace(suffix=".so")
    piece: Any = SimpleNamespace(id="a" * 64)
    return worker.Job(piece, compiler, {}, folder, os.getpid(), None)


def report(folder: Path, why: str) -> None:
    error = CompileError("piece a does not compile", why).as_dict()
    (folder / worker.REPORT).write_text(json.dumps({"error": error}))


def test_a_report_or_a_log_of_a_full_disk_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"as: {FULL}\n")
    for _ in range(2):
        with pytest.raises(StorageError, match="no room to compile in") as caught:
            worker.collect(job(tmp_path), 1)
        assert str(tmp_path.parent) in caught.value.what
        assert FULL in caught.value.why
        assert "TMPDIR" in caught.value.hint
        report(tmp_path, FULL)


def test_a_disk_without_room_for_a_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1, 1, worker.LEAST_ROOM - 1))
    with pytest.raises(StorageError, match="no room"):
        worker.collect(job(tmp_path), 1)
    report(tmp_path, "ValueError: no")
    with pytest.raises(StorageError) as caught:
        worker.collect(job(tmp_path), 0)
    assert "ValueError: no" in caught.value.why, "what the compiler said is not lost"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 0))
    with pytest.raises(CompileError, match="does not compile"):
        worker.collect(job(tmp_path), 0)


def test_with_room_the_piece_is_to_blame(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="ended without a report"):
        worker.collect(job(tmp_path), 1)
    report(tmp_path, "ValueError: no")
    with pytest.raises(CompileError, match="does not compile"):
        worker.collect(job(tmp_path), 0)
