"""JSON lines: each is answered or refused by its number, whatever the others are."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import threading

import pytest
from support.fake_runner import FakeRunner, limits

from vcc.cache.errors import StorageError
from vcc.engine import stdio
from vcc.engine.models.source import open_source
from vcc.engine.runtime.defaults import Overrides
from vcc.engine.serving import Serving
from vcc.engine.stdio import Descriptor, Line, Stdio, read_lines

BAD = {
    b"nonsense": "not valid JSON",
    b"\xff\xfe": "not valid JSON",
    b"[1]": "no JSON object",
    b"{}": "no prompt",
    b'{"prompt": "x", "promt": 1}': "no field promt",
    b'{"prompt": 1}': "prompt is 1",
    b'{"prompt": [1, "a"]}': "something else than token ids",
    b'{"prompt": [true]}': "something else than token ids",
    b'{"prompt": ""}': "empty",
    b'{"prompt": [99999]}': "99999",
    b'{"prompt": "x", "max_new_tokens": true}': "max_new_tokens is True",
    b'{"prompt": "x", "max_new_tokens": 0}': "0 new tokens",
    b'{"prompt": "x", "temperature": -1}': "temperature -1",
    b'{"prompt": "x", "seed": -1}': "seed -1",
    b'{"prompt": "a\\ud800"}': "not valid JSON",
    b"[" * 5000: "not valid JSON",
}


def answered(data: bytes, **options: object) -> list[dict]:
    said: list[dict] = []
    serving = Serving(FakeRunner(limits(vocab=2048)), open_source("demo"))
    overrides = Overrides(max_new_tokens=3, ignore_eos=True)
    Stdio(serving, said.append, overrides, **options).run(read_lines(io.BytesIO(data).readline))
    return json.loads(json.dumps(said))


def test_answers_are_streamed_and_bear_the_id_of_their_request() -> None:
    said = answered(b'{"prompt": [1, 2], "id": "a"}\n\n{"prompt": [3], "max_new_tokens": 1}')
    ended = {one["id"]: one for one in said if "finish_reason" in one}
    assert {name: len(one["token_ids"]) for name, one in ended.items()} == {"a": 3, 3: 1}
    for name, one in ended.items():
        bits = [line["text"] for line in said if line["id"] == name and line is not one]
        assert "".join(bits) == one["text"]


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:30].decode(errors="replace"))
def test_a_bad_line_is_refused_by_number_and_the_others_are_answered(line: bytes) -> None:
    good = b'{"prompt": [1], "id": "good"}'
    said = answered(b"\n".join((good, line, good)))
    refused = [one for one in said if "error" in one]
    assert [one["line"] for one in refused] == [2]
    error = refused[0]["error"]
    assert BAD[line] in f"{error['what']}: {error['why']}"
    assert error["exit"] == 2
    assert [one["id"] for one in said if "finish_reason" in one] == ["good", "good"]


def test_a_line_that_is_too_long_is_skipped_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "LONGEST_LINE", 64)
    data = b'{"prompt": "' + b"x" * 300 + b'"}\n{"prompt": [1]}\n' + b"y" * 65
    assert [(one.number, one.data is None) for one in read_lines(io.BytesIO(data).readline)] == [
        (1, True),
        (2, False),
        (3, True),
    ]
    said = answered(data)
    assert [one["line"] for one in said if "error" in one] == [1, 3]


def test_an_end_without_requests_is_an_end() -> None:
    assert answered(b"") == answered(b"\n \n") == []


def test_steps_do_not_wait_for_lines_that_have_not_come() -> None:
    """The first answer ends while the second request is still being typed."""
    said, ended = [], threading.Event()

    def lines():
        yield Line(1, b'{"prompt": [1], "id": "first"}')
        assert ended.wait(20), "the answer waits for the next line"
        yield Line(2, b'{"prompt": [2], "id": "second"}')

    def emit(one: dict) -> None:
        said.append(one)
        if "finish_reason" in one:
            ended.set()

    serving = Serving(FakeRunner(limits(vocab=2048)), open_source("demo"))
    Stdio(serving, emit, Overrides(max_new_tokens=2, ignore_eos=True)).run(lines())
    assert [one["id"] for one in said if "finish_reason" in one] == ["first", "second"]


def test_an_input_that_cannot_be_read_on_is_an_error_after_the_answers() -> None:
    said: list[dict] = []

    def lines():
        yield Line(1, b'{"prompt": [1], "id": "first"}')
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    serving = Serving(FakeRunner(limits(vocab=2048)), open_source("demo"))
    overrides = Overrides(max_new_tokens=2, ignore_eos=True)
    with pytest.raises(StorageError, match="standard input: Input/output error"):
        Stdio(serving, said.append, overrides).run(lines())
    assert [one["id"] for one in said if "finish_reason" in one] == ["first"]


@pytest.mark.parametrize("pieces", [1, 3, 70000])
def test_a_descriptor_gives_lines_however_they_come(pieces: int) -> None:
    data = b"one\n\ntwo" + b"x" * 5000 + b"\nthree\nend without end"
    inlet, outlet = os.pipe()

    def write() -> None:
        for at in range(0, len(data), pieces):
            os.write(outlet, data[at : at + pieces])
        os.close(outlet)

    threading.Thread(target=write).start()
    mine, theirs = Descriptor(inlet), io.BytesIO(data)
    try:
        while wanted := theirs.readline(1000):
            assert mine.readline(1000) == wanted
        assert mine.readline(1000) == b""
    finally:
        os.close(inlet)


FAILING = """
import sys
from vcc.cache.errors import DeviceError
from vcc.cli import main, stdio

class Broken:
    busy = False
    def __init__(self, *given): pass
    def submit(self, *given, **named):
        self.busy = True
        return 0
    def step(self): raise DeviceError("the device is lost")

import types, vcc.engine.serving, vcc.engine.session
vcc.engine.serving.Serving = Broken
ready = types.SimpleNamespace(booted=types.SimpleNamespace(runner=None))
vcc.engine.session.open_session = lambda session: ready
main.main()
"""


def test_a_step_that_fails_ends_the_process_while_its_input_is_open(tmp_path) -> None:
    """With the exit code of its error, though a thread waits for the next line."""
    done = subprocess.Popen(
        [sys.executable, "-c", FAILING, "run", "demo", "--stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"VCC_CACHE_DIR": str(tmp_path)},
    )
    assert done.stdin is not None
    try:
        done.stdin.write(b'{"prompt": [1]}\n')
        done.stdin.flush()
        assert done.wait(60) == 3
        assert done.stderr is not None
        said = done.stderr.read()
        assert b"the device is lost" in said
        assert b"Fatal Python error" not in said
    finally:
        done.kill()
        done.communicate()
