"""Progress is lines away from a terminal, with a heartbeat, and bars on one."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import time

import pytest

from vcc.cache.errors import ModelError
from vcc.cli.console import (
    LineEvents,
    ask,
    columns,
    err,
    events,
    heartbeat,
    note,
    out,
    out_json,
    short,
    show_error,
    size_text,
)
from vcc.engine.events import Events, NullEvents


def test_lines_without_a_terminal(capsys):
    shown = events()
    assert isinstance(shown, LineEvents)
    shown.stage_started("compile", 2)
    shown.progress("a", "running")
    shown.progress("a", "done")
    shown.note("something else")
    shown.stage_finished("compile", 1.5)
    shown.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["compile: a done (1 of 2)", "note: something else", "compile: 1.50 s"]


def test_quiet_leaves_notes(capsys):
    shown = events(quiet=True)
    shown.stage_started("compile", 2)
    shown.progress("a", "done")
    shown.note("heard")
    shown.stage_finished("compile", 1.5)
    assert capsys.readouterr().err == "note: heard\n"


def test_a_silent_stage_has_a_heartbeat_that_ends_with_it(capsys):
    shown = LineEvents(heartbeat=0.02)
    shown.stage_started("compile", 2)
    time.sleep(0.1)
    shown.stage_finished("compile", 0.1)
    beats = capsys.readouterr().err.splitlines()
    assert any(re.fullmatch(r"compile: running for 0 s, 0 of 2 done", line) for line in beats)
    time.sleep(0.06)
    assert capsys.readouterr().err == ""


def test_the_heartbeat_estimates_once_something_is_done():
    assert (
        heartbeat("compile", 2, 6, 10.0)
        == "compile: running for 10 s, 2 of 6 done, about 20 s left"
    )
    assert heartbeat("trace", 0, 0, 10.0) == "trace: running for 10 s"


@pytest.mark.parametrize("color", [True, False])
def test_bars_on_a_terminal_and_no_colour_when_asked(color):
    code = (
        "import time; from vcc.cli.console import events, show_error\n"
        "from vcc.cache.errors import UsageError\n"
        "shown = events(); shown.stage_started('compile', 2)\n"
        "shown.progress('piece 0', 'running'); shown.note('[note]')\n"
        "shown.progress('piece 0', 'done')\n"
        "time.sleep(0.2); shown.stage_finished('compile', 1.0); shown.close()\n"
        "show_error(UsageError('[bad]', 'why not', 'do'))\n"
    )
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"TERM": "xterm-256color"} | ({} if color else {"NO_COLOR": "1"})
    leader, follower = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=follower, env=env, check=True)
    os.close(follower)
    text = _drain(leader)
    for part in ("piece 0", "note: [note]", "compile: 1.00 s", "[bad]", "why: why not"):
        assert part in text
    assert ("\x1b[1;31m" in text) is color


def _drain(fd: int) -> str:
    data = b""
    while True:
        try:
            chunk = os.read(fd, 65536)
        except OSError:
            break
        if not chunk:
            break
        data += chunk
    os.close(fd)
    return data.decode()


def test_columns_are_aligned_and_the_last_is_not_padded():
    assert columns([("a", "bb", "c"), ("aaa", "b", "")]) == "a    bb  c\naaa  b"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000_000, "2.0 GB")]
)
def test_sizes(size, text):
    assert size_text(size) == text


def test_digests_are_shown_by_their_beginning():
    assert short("ab" * 32) == "ab" * 6
    assert short("piece 0") == "piece 0"


def test_what_a_terminal_cannot_show_becomes_an_escape(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.stderr", stream)
    out("é → x")
    err("é")
    stream.seek(0)
    assert stream.read() == "\\xe9 \\u2192 x\n\\xe9\n"


def test_names_in_an_error_cannot_steer_the_terminal(capsys):
    show_error(
        ModelError("tensor \x1b[31mred\nerror: none", "line one\n\tline \x07two", "\x9bhint")
    )
    note("a\x1b]0;title\x07")
    assert capsys.readouterr().err == (
        "error: tensor ?[31mred?error: none\n  why: line one\n line ?two\n  hint: ?hint\n"
        "note: a?]0;title?\n"
    )


def test_json_of_a_file_name_that_is_no_utf_8_is_valid(monkeypatch):
    raw = io.BytesIO()
    # As Python opens it in the C locale.
    stream = io.TextIOWrapper(raw, "utf-8", errors="surrogateescape")
    monkeypatch.setattr(sys, "stdout", stream)
    out_json({"file": os.fsdecode(b"\xff"), "text": "é"})
    assert json.loads(raw.getvalue().decode()) == {"file": "\udcff", "text": "é"}


def test_all_listeners_keep_the_protocol():
    assert isinstance(LineEvents(), Events)
    silent = NullEvents()
    assert isinstance(silent, Events)
    silent.stage_started("a")
    silent.progress("a", "done")
    silent.note("a")
    silent.stage_finished("a", 1.0)


def test_a_question_is_no_result(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert (ask("> "), ask("> ")) == ("yes", None)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "> > \n"
