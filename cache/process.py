"""Processes by name: who made a temporary folder or holds an artifact, and whether it still runs.

    name    = host "." boot "." process "." rest
    process = pid "-" start "-" namespace          ; `pid` alone before format 1.1

A pid alone says little: it is used again, after a restart too, and two containers have the same
ones. Boot id, start time (clock ticks since the boot) and pid namespace tell those apart.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

TMP = "tmp"
"""Below `v1`: the folders of processes at work."""


class Life(Enum):
    """What is known of a process: it runs, it is gone, or it cannot be seen from here."""

    RUNS = "runs"
    GONE = "gone"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one host.

    Args:
        host: the host's name, letters, digits and hyphens.
        boot: id of the boot of its kernel, hex; "0" where the system does not tell.
        pid: its number.
        start: clock ticks between that boot and its start; 0 where it is not known.
        namespace: number of its pid namespace; 0 where it is not known.
    """

    host: str
    boot: str
    pid: int
    start: int = 0
    namespace: int = 0

    @classmethod
    def own(cls) -> Process:
        """This process."""
        pid = os.getpid()
        return cls(_host(), _boot_id(), pid, _started(pid) or 0, _namespace())

    @classmethod
    def parse(cls, name: str) -> Process | None:
        """The process that a name begins with; None for a name of another form."""
        match = _NAME.match(name)
        if match is None:
            return None
        host, boot, *numbers = match.groups(default="0")
        return cls(host, boot, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.host}.{self.boot}.{self.pid}-{self.start}-{self.namespace}"

    def life(self) -> Life:
        """Whether it runs, as far as this process can see.

        ELSEWHERE also after a restart of this host: another machine may carry the same name.
        """
        here = (_host(), _boot_id())
        if (self.host, self.boot) != here or self.namespace not in (0, _namespace()):
            return Life.ELSEWHERE
        started = _started(self.pid)
        if started is None or (self.start and started and started != self.start):
            return Life.GONE
        return Life.RUNS


_NAME = re.compile(
    r"([A-Za-z0-9-]{1,64})\.([0-9a-f]{1,32})\.(\d{1,10})(?:-(\d{1,20})-(\d{1,20}))?\."
)


def own_name() -> str:
    """A name of this process that is used once: equal pids and hosts in containers do not clash."""
    return f"{Process.own()}.{os.urandom(16).hex()}"


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", os.uname().nodename)[:40] or "host"


def _boot_id() -> str:
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return "0"
    return re.sub(r"[^0-9a-f]", "", text)[:32] or "0"


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _started(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process, 0 where that is hidden; None: it is gone."""
    try:
        # The name of a program stands in parentheses and may contain anything, those too.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except ProcessLookupError:
        return None
    except (OSError, ValueError, IndexError):  # not there, or hidden (hidepid): ask otherwise
        return _answers(pid)


def _answers(pid: int) -> int | None:
    """0 for a process that could be sent a signal, ours or another account's."""
    if pid < 1:  # would mean groups of processes
        return None
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except OSError:
        pass
    return 0
