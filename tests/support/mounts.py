"""Work in a child with file systems of its own: full, read-only, noexec. Needs root."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from support.stores import child, exit_of

CLONE_NEWNS = 0x00020000


def can_mount() -> str:
    """Why this process cannot mount; empty when it can."""
    if os.geteuid() != 0:
        return "needs root: it mounts file systems"
    code = exit_of(child(_unshared))
    return "" if code == 0 else "this system does not let root mount (unshare is refused)"


def mount(place: Path, options: str) -> None:
    """Mount a fresh tmpfs at `place`, or change the options of the one there (`remount,...`)."""
    place.mkdir(exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)],
        check=True,
        capture_output=True,
    )


def in_own_mounts(work: Callable[[], object]) -> int:
    """Exit status of `work` in a child whose mounts nobody else sees and that end with it."""

    def unshared() -> None:
        _unshared()
        work()

    return exit_of(child(unshared))


def _unshared() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True, capture_output=True)
