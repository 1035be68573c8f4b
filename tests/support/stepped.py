"""Work in a child that waits before each change of the disk: two can be interleaved at will.

A listing of a folder is a point too: what somebody else did before it is seen, what comes after is
not. `kill` ends the child by SIGKILL where it waits, which is before a system call.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

from support.crashes import CALLS
from support.stores import child

POINTS = (*CALLS, "listdir")
WAIT_S = 60.0


class Stepped:
    """One piece of work; it begins with the first step.

    Args:
        work: what the child does. It must not fail: `finish` asserts that.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        here, there = socket.socketpair()
        here.settimeout(WAIT_S)

        def waiting() -> None:
            here.close()
            for name in POINTS:
                setattr(os, name, _waiting(getattr(os, name), there))
            work()

        self.pid, self.line = child(waiting), here
        there.close()
        self.runs = self._waits()

    def step(self) -> bool:
        """Do what it waits for and go on to the next point; False once the work is done."""
        if self.runs:
            self.line.send(b"g")
            self.runs = self._waits()
        return self.runs

    def steps(self, count: int) -> bool:
        """That many steps, or fewer where the work is done; returns whether it is not."""
        for _ in range(count):
            self.step()
        return self.runs

    def finish(self) -> None:
        """All steps that are left; the work did not fail."""
        while self.step():
            pass
        self._end(0)

    def kill(self) -> None:
        """SIGKILL where it waits; nothing where the work is done."""
        if self.runs:
            os.kill(self.pid, signal.SIGKILL)
        self._end(-signal.SIGKILL if self.runs else 0)

    def _waits(self) -> bool:
        return self.line.recv(1) == b"w"

    def _end(self, code: int) -> None:
        self.line.close()
        assert os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) == code


def _waiting(real: Callable, line: socket.socket) -> Callable:
    def call(*args, **options):
        line.send(b"w")
        line.recv(1)
        return real(*args, **options)

    return call
