"""A signal ends a command also when it comes while the interpreter calls something of its own."""

from __future__ import annotations

import signal
import sys

import pytest

from vcc.cli.signals import catch_signals

LOST = """
import os, sys, time
from types import ModuleType
from vcc.cli import main

def build(*rest):
    os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), {number}))
    if os.fork() == 0:
        os._exit(0)
    try:
        time.sleep(60)
    finally:
        print("cleaned", file=sys.stderr, flush=True)

fake = ModuleType("vcc.engine.pipeline")
fake.build = build
sys.modules["vcc.engine.pipeline"] = fake
main.main(["compile", "demo"])
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 143)])
def test_a_signal_right_after_a_fork_is_not_forgotten(spawn, name, code):
    process = spawn(code=LOST.format(number=int(signal.Signals[name])))
    _, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert "cleaned" in err
    assert "Traceback" not in err
    assert "ignored" not in err


def test_other_exceptions_that_nobody_can_catch_are_told_as_ever(monkeypatch):
    class Bad:
        def __del__(self):
            raise ValueError("told")

    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: told.append(str(lost.exc_value)))
    before = sys.unraisablehook
    put_back = catch_signals()
    try:
        Bad()
    finally:
        put_back()
    assert told == ["told"]
    assert sys.unraisablehook is before
