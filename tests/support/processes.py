"""Child processes of a test: found by a mark in their environment, wherever they hang."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4


def marked(mark: str) -> dict[int, str]:
    """Living processes with VCC_TEST_MARK=mark in their environment: id to command line."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            environment = (folder / "environ").read_bytes().split(b"\0")
            if f"VCC_TEST_MARK={mark}".encode() in environment and _lives(folder):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = command.decode(errors="replace")
    return found


def running(mark: str, program: str) -> int:
    """How many of the marked processes run this program."""
    return sum(command.split(" ")[0] == program for command in marked(mark).values())


def _lives(folder: Path) -> bool:
    return (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


@contextmanager
def mark() -> Iterator[str]:
    """A fresh mark; whatever still carries it at the end is ended."""
    name = uuid4().hex
    try:
        yield name
    finally:
        for pid in marked(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
