"""A build in a process of its own: one that crashes or eats all memory takes no other with it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from vcc.cache.errors import (
    CompileError,
    DeviceError,
    Exit,
    GraphError,
    IntegrityError,
    LockTimeout,
    RemoteError,
    StorageError,
    UsageError,
    VccError,
)

GRACE_SECONDS = 15.0
"""For a build that is told to end; then it is killed."""

_KINDS: Mapping[int, type[VccError]] = {
    int(kind.exit): kind
    for kind in (
        *(UsageError, DeviceError, RemoteError, StorageError, LockTimeout),
        *(IntegrityError, CompileError, GraphError),
    )
}


def compile_apart(words: Sequence[str]) -> str:
    """Run `vcc compile` with these words; the id of its artifact.

    Its progress goes to our standard error.

    Raises:
        VccError: what it ended with, of the kind that its exit code says.
    """
    # Not -m: the folder that we were started in would come before what is installed.
    head = [sys.executable, "-c", "from vcc.cli.main import main; main()"]
    with subprocess.Popen(
        [*head, "compile", *words, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as child:
        try:
            said, _ = child.communicate()
        except BaseException:
            _end(child)
            raise
    found = _read(said)
    if child.returncode != 0:
        raise _error(child.returncode, found)
    artifact = found.get("artifact")
    if not isinstance(artifact, str):
        raise CompileError("the build says nothing of its artifact", str(found)[:200])
    return artifact


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_SECONDS)
        return
    child.kill()


def _read(said: bytes) -> Mapping[str, Any]:
    with suppress(ValueError, RecursionError):
        found = json.loads(said)
        if isinstance(found, dict):
            return found
    return {}


def _error(code: int, found: Mapping[str, Any]) -> VccError:
    if code < 0:
        name = signal.Signals(-code).name if -code in [*signal.Signals] else str(-code)
        hint = "memory ran out? --jobs 1 needs the least" if -code == signal.SIGKILL else ""
        return CompileError("the build was ended from outside", f"by {name}", hint)
    told = found.get("error")
    fields = told if isinstance(told, dict) else {}
    what, why, hint = (str(fields.get(name, "")) for name in ("what", "why", "hint"))
    kind = _KINDS.get(code, VccError)
    return kind(what or f"the build ended with exit code {code}", why, hint)


def exit_code(errors: Sequence[VccError], others: int) -> Exit:
    """The exit code of several builds: of the first error where all failed, else partial."""
    if not errors:
        return Exit.OK
    return Exit.PARTIAL if others else errors[0].exit
