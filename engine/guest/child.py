"""Running a guest: started once, told what vcc is told, and waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from vcc.cache.errors import UsageError

FORWARDED = frozenset(
    {
        *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
        *(signal.SIGUSR1, signal.SIGUSR2),
    }
)
# Python ignores these; a program expects them as they are.
_AS_USUAL = (signal.SIGPIPE, signal.SIGXFSZ)


LOOK_S = 0.2
"""Seconds between looks at the program where no signal tells of its end."""


def run_child(program: str, words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program to its end with our standard streams.

    Signals that another process sends to us are handed on. What the terminal sends (Ctrl-C) the
    program has got itself, being in the same group; we only go on waiting.

    Args:
        program: path of the file.
        words: its arguments, the first of them its name.
        environment: all variables.

    Returns:
        Its exit code; 128 and the number of the signal where one ended it.

    Raises:
        UsageError: it cannot be started.
    """
    heard = {*FORWARDED, signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody tells of an end
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    try:
        pid = _started(program, words, environment, before)
        return _waited(pid, heard)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(
    program: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    mask: set[signal.Signals] | set[int],
) -> int:
    try:
        return os.posix_spawn(
            program, list(words), environment, setsigmask=list(mask), setsigdef=_AS_USUAL
        )
    except OSError as error:
        hint = "a script needs a first line such as #!/usr/bin/env python3, and chmod +x"
        raise UsageError(f"cannot start {program}", str(error.strerror), hint) from error


def _waited(pid: int, heard: set[signal.Signals]) -> int:
    while True:
        # Another thread, such as a storage client's, may be handed the signal of the end instead.
        found = signal.sigtimedwait(heard, LOOK_S)
        if found is not None and found.si_signo != signal.SIGCHLD:
            if found.si_code <= 0:  # a process sent it; the terminal's come from the kernel
                with suppress(ProcessLookupError):
                    os.kill(pid, found.si_signo)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
