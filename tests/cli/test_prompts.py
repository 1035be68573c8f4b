"""Prompts come from options, from files of lines or JSON, and from standard input."""

from __future__ import annotations

import io

import pytest

from vcc.cache.errors import UsageError
from vcc.cli.prompts import read_prompts
from vcc.engine.prompt import Prompt


@pytest.mark.parametrize(
    ("name", "text", "prompts"),
    [
        ("f.txt", "a\n\nb c\n", (Prompt("a"), Prompt("b c"))),
        ("f.txt", "[INST] hi\n", (Prompt("[INST] hi"),)),
        ("f.txt", '["a", [1, 2]]', (Prompt("a"), Prompt(None, (1, 2)))),
        ("f.json", ' ["a\\nb"] ', (Prompt("a\nb"),)),
        ("f.json", "[[]]", (Prompt(None, ()),)),
    ],
)
def test_files(tmp_path, name, text, prompts):
    (tmp_path / name).write_text(text)
    assert read_prompts((), tmp_path / name) == prompts
    assert read_prompts(["x"], tmp_path / name) == (Prompt("x"), *prompts)


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("f.txt", b"", "there is no prompt"),
        ("f.txt", b"\n\n", "there is no prompt"),
        ("f.txt", b"\xff\xfe", "cannot read prompts"),
        ("f.json", b"{", "not valid JSON"),
        ("f.json", b'{"a": 1}', "no list of prompts"),
        ("f.json", b"[1]", "prompt 0 of"),
        ("f.json", b'["a", [1, true]]', "prompt 1 of"),
        ("f.json", b'["a", [1.5]]', "prompt 1 of"),
        ("f.json", b"[" * 100_000, "not valid JSON"),
        ("f.json", b'["a", "\\ud800"]', "prompt 1 is not valid Unicode"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, data, what):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=what):
        read_prompts((), tmp_path / name)


def test_standard_input(monkeypatch):
    from pathlib import Path

    monkeypatch.setattr("sys.stdin", io.StringIO("a\nb\n"))
    assert read_prompts((), Path("-")) == (Prompt("a"), Prompt("b"))
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nb\n"))
    assert read_prompts((), None) == (Prompt("a\nb"),)
    monkeypatch.setattr("sys.stdin", io.StringIO("ignored"))
    assert read_prompts(["x"], None) == (Prompt("x"),)


def test_what_is_no_text_or_no_input_at_all(monkeypatch):
    with pytest.raises(UsageError, match="prompt 0 is not valid Unicode"):
        read_prompts(["\udcff"], None)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    with pytest.raises(UsageError, match="cannot read prompts from -"):
        read_prompts((), None)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UsageError, match="there is no prompt"):
        read_prompts((), None)
