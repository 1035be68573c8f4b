"""The build's own process: what it tells, how it fails, and that it ends with its parent's wish."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cuda_child import SM_90

from vcc.cache.errors import CompileError, ConfigError, DeviceError, VccError
from vcc.engine.events import NullEvents
from vcc.engine.graphs.planner import process
from vcc.engine.graphs.planner.content import GpuContent, StepContent, read, write
from vcc.engine.graphs.planner.sources import KernelSource, ValuePlace

VALUES = {"q": ValuePlace(1, ["*", 4, "T"], "float32", ("T", 8), (8, 1))}
CONTENT = GpuContent(
    steps=(
        StepContent("1-8", b"table", VALUES, (("q",), ())),
        StepContent("4-4", b"exact", VALUES, (("q",),)),
    ),
    cubins={"ab" * 32: b"cubin"},
    constants={"inv_freq": b"\0" * 8, "rope/cos": b"\1"},
    sources={"ab" * 32: KernelSource("ab" * 32, "f", "m", "", (("x", "*bf16"),), {"N": 1})},
    info={"table": {"bytes": 5}},
    stages={"trace": 0.5},
    counters={"traces": 1},
    toolkit="12.8",
    driver=12000,
)


class Heard(NullEvents):
    """Keeps what it is told; acts on a note if asked to."""

    def __init__(self, on_note: Callable[[], None] | None = None) -> None:
        self.said: list[tuple[Any, ...]] = []
        self._on_note = on_note

    def stage_started(self, stage: str, total: int = 0) -> None:
        self.said.append(("started", stage, total))

    def stage_finished(self, stage: str, seconds: float) -> None:
        self.said.append(("finished", stage, seconds))

    def progress(self, item: str, state: str) -> None:
        self.said.append(("progress", item, state))

    def note(self, reason: str) -> None:
        self.said.append(("note", reason))
        if self._on_note is not None:
            self._on_note()


def run(
    monkeypatch: pytest.MonkeyPatch, body: Callable[[Path, Any], None], events: Any = None
) -> GpuContent:
    """`plan_in_child` with `body` in place of the build."""

    def build(settled: Any, profile: Any, folder: Path, pipe: Any) -> None:
        body(folder, process._Told(pipe))

    monkeypatch.setattr(process, "_build", build)
    settled: Any = None
    return process.plan_in_child(settled, SM_90, events or NullEvents())


def test_a_result_and_the_events_before_it_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(folder: Path, told: Any) -> None:
        told.stage_started("compile", 2)
        told.progress("p", "done")
        told.note("a note")
        told.stage_finished("compile", 1.5)
        write(CONTENT, folder)

    heard = Heard()
    assert run(monkeypatch, body, heard) == CONTENT
    assert heard.said == [
        ("started", "compile", 2),
        ("progress", "p", "done"),
        ("note", "a note"),
        ("finished", "compile", 1.5),
    ]


def test_what_torch_leaves_among_temporary_files_goes_with_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def body(folder: Path, told: Any) -> None:
        handle, name = tempfile.mkstemp()
        os.close(handle)
        told.note(name)
        write(CONTENT, folder)

    heard = Heard()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run(monkeypatch, body, heard)
    assert str(heard.said[0][1]).startswith(str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [CompileError, ConfigError, DeviceError])
def test_an_error_keeps_its_kind_and_its_words(
    monkeypatch: pytest.MonkeyPatch, kind: type[VccError]
) -> None:
    def body(folder: Path, told: Any) -> None:
        raise kind("what", "why", "hint")

    with pytest.raises(kind) as caught:
        run(monkeypatch, body)
    assert (caught.value.what, caught.value.why, caught.value.hint) == ("what", "why", "hint")


def test_any_other_exception_is_a_compile_error_with_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def body(folder: Path, told: Any) -> None:
        raise ZeroDivisionError("no such number")

    with pytest.raises(CompileError, match="ZeroDivisionError: no such number"):
        run(monkeypatch, body)


def test_a_child_of_a_process_that_has_used_cuda_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def body(folder: Path, told: Any) -> None:
        raise RuntimeError("CUDA error: initialization error")

    with pytest.raises(DeviceError, match="it has used CUDA already") as caught:
        run(monkeypatch, body)
    assert "vcc compile" in caught.value.hint


def test_an_error_of_the_models_own_is_not_laid_to_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(folder: Path, told: Any) -> None:
        raise ValueError("weight initialization error in layer 3")

    with pytest.raises(CompileError, match="weight initialization error in layer 3"):
        run(monkeypatch, body)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda: os._exit(0), "status 0"),  # a pass of the user's may
        (lambda: os._exit(70), "status 70"),
    ],
)
def test_a_child_that_ends_without_a_result_is_told_with_what_it_said_last(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[], None], told: str
) -> None:
    def body(folder: Path, _: Any) -> None:
        os.write(2, b"out of memory\n")
        end()

    with pytest.raises(CompileError, match=rf"{told}(?s:.)*out of memory"):
        run(monkeypatch, body)


def test_an_interrupt_of_the_parent_ends_the_child(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def body(folder: Path, told: Any) -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        told.note("running")
        time.sleep(60)

    def interrupt() -> None:
        raise KeyboardInterrupt

    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, body, Heard(interrupt))
    assert time.monotonic() - before < 30
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


def test_content_survives_its_folder(tmp_path: Path) -> None:
    write(CONTENT, tmp_path)
    assert read(tmp_path) == CONTENT
    assert list(CONTENT.blobs()) == [
        *("table/step/1-8", "table/step/4-4"),
        *(f"cubin/{'ab' * 32}", "constant/inv_freq", "constant/rope/cos"),
    ]
