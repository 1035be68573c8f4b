"""A signal that comes around a fork is told once, by the parent, and the child is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

STARTED = """
import os, signal, sys, time
from multiprocessing import get_context
from vcc.engine.compile import child

def body(slow):
    time.sleep(slow)
    child.begin()
    time.sleep(60)

def end(number, frame):
    raise SystemExit(number)

signal.signal({number}, end)
os.register_at_fork(after_in_parent=lambda: os.killpg(0, {number}))
process = get_context("fork").Process(target=body, args=({slow},))
try:
    with child.running(process):
        time.sleep(60)
finally:
    print(process.exitcode)
"""

BODY = """
import os, signal
from vcc.engine.compile import child

print("imported", "torch" in __import__("sys").modules, flush=True)
child.begin()
print(os.getpgrp() == os.getpid(), flush=True)
os.kill(os.getpid(), {number})
print("still here")
"""

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("slow", [0, 0.3])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_to_the_group_at_a_fork_is_the_parents_to_tell(number, slow):
    code = STARTED.format(number=int(number), slow=slow)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        start_new_session=True,
    )
    assert (done.returncode, done.stderr) == (number, "")
    assert done.stdout == f"{-signal.SIGKILL}\n"


@pytest.mark.parametrize("number", NUMBERS)
def test_a_child_ends_by_a_signal_without_a_word(number):
    """In a group of its own, before torch."""
    code = f"import os\nif os.fork() == 0:\n exec({BODY.format(number=int(number))!r})\n"
    code += "print(os.waitstatus_to_exitcode(os.wait()[1]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["imported", "False", "True", str(-number)]
    assert done.stderr == ""


def test_a_child_that_was_never_started_takes_nobody_with_it():
    from multiprocessing import get_context

    from vcc.engine.compile import child

    child.kill(get_context("fork").Process(target=os.getpid))  # group 0 would be our own
