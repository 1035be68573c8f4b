"""Memory of this process from the system's own books: what it has, and the most it had."""

from __future__ import annotations

import resource
from contextlib import suppress

_STATUS, _CLEAR = "/proc/self/status", "/proc/self/clear_refs"


def resident() -> tuple[int, int]:
    """Bytes in memory now, and the most since `begin_peak`; zeros where the system does not say."""
    found = {"VmRSS:": 0, "VmHWM:": 0}
    with suppress(OSError, ValueError, IndexError), open(_STATUS, encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if words and words[0] in found:
                found[words[0]] = int(words[1]) << 10
    return found["VmRSS:"], found["VmHWM:"]


def begin_peak() -> bool:
    """Let the most begin anew from now; whether the system does that."""
    try:
        with open(_CLEAR, "w", encoding="ascii") as stream:
            stream.write("5")
    except OSError:
        return False
    return True


def largest_child() -> int:
    """Bytes of the largest process that this one started and that has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
