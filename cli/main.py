"""vcc: the command line. Here, and only here, errors become text and a stable exit code."""

from __future__ import annotations

import errno
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

from vcc.cache.errors import Exit, StorageError, UsageError, VccError
from vcc.cli.again import with_assertions
from vcc.cli.console import err, out_json, show_error
from vcc.cli.signals import Terminate, catch_signals, ignore_signals
from vcc.cli.streams import abandon, end_streams


class Interrupted(VccError):
    """Ctrl-C."""

    exit, id = Exit.INTERRUPTED, "INTERRUPTED"


class NoCommand(UsageError):
    """vcc or one of its groups alone: the answer is its help.

    Args:
        command: which.
        text: the help.
    """

    def __init__(self, command: str, text: str) -> None:
        super().__init__(f"{command} needs a command", "", f"{command} --help lists what there is")
        self.text = text


class Terminated(VccError):
    """SIGTERM or a closed terminal."""

    exit, id = Exit.TERMINATED, "TERMINATED"


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk without room says, where no error of vcc's own comes first: of the help's output."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run vcc and exit: 0 or the code of the error.

    Args:
        arguments: without the program's name; those of the process by default.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with_assertions(words)
    code = run(words)
    end_streams()
    if code == Exit.INTERRUPTED:  # once more would end the interpreter's own clean-up
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # the interpreter's last collections of what torch has made take half a second
    sys.exit(code)


def run(words: Sequence[str]) -> int:
    """Run one command; the exit code."""
    put_back = catch_signals()
    try:
        return _run(words)
    except BrokenPipeError:  # who reads our output has left (`vcc ... | head`)
        abandon(sys.stdout)
        return Exit.NEGATIVE
    except (KeyboardInterrupt, Terminate) as again:  # while the first was being told
        return int(as_vcc_error(again).exit)
    finally:
        put_back()


def _run(words: Sequence[str]) -> int:
    try:
        _begin(words)
        from vcc.cli.app import app_for

        code = app_for(words)(args=list(words), prog_name="vcc", standalone_mode=False)
        if code == Exit.INTERRUPTED:  # typer turns KeyboardInterrupt into this
            raise KeyboardInterrupt
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else Exit.OK
    except (BrokenPipeError, SystemExit):
        raise
    except BaseException as caught:
        ignore_signals()
        error = as_vcc_error(caught)
        own = words[: words.index("--")] if "--" in words else words
        if isinstance(error, NoCommand) and "--json" not in own:
            err(error.text)
            return int(error.exit)
        _report(error, as_json="--json" in own)
        return int(error.exit)


def _begin(words: Sequence[str]) -> None:
    """A GPU takes a while to open: a run begins that before the command line is read."""
    if words[:1] != ["run"] or {"-h", "--help", "--"} & {*words}:
        return
    after = dict(pairwise(words))
    said = [word.partition("=")[2] for word in words if word.startswith("--target=")]
    target = said[-1] if said else after.get("--target", "sm_")
    if target.startswith(("sm_", "cuda")):
        from vcc.engine.runtime.player.device import warm_up

        warm_up()


def as_vcc_error(caught: BaseException) -> VccError:
    """Any exception as what, why and hint with an exit code."""
    if isinstance(caught, VccError):
        return caught
    from vcc.cli.app import Abort, ClickError

    if isinstance(caught, ClickError):
        return _usage(caught)
    if isinstance(caught, (KeyboardInterrupt, Abort)):
        return Interrupted("interrupted")
    if isinstance(caught, Terminate):
        return Terminated("terminated", f"signal {caught.name}")
    if isinstance(caught, OSError) and caught.errno in _FULL:
        return StorageError("a file cannot be written", str(caught), "make room where it lies")
    logging.getLogger(__name__).debug("unexpected", exc_info=caught)
    return VccError(
        "vcc failed unexpectedly",
        f"{type(caught).__name__}: {caught}",
        "this is a bug in vcc; VCC_LOG_LEVEL=debug shows where, please report it with that",
    )


def _usage(caught: Exception) -> UsageError:
    format_message, context = getattr(caught, "format_message", None), getattr(caught, "ctx", None)
    message = str(format_message() if callable(format_message) else caught)
    command = context.command_path if context is not None else "vcc"
    if message.startswith("Usage: "):  # a group without a command answers with its help
        return NoCommand(command, message)
    return UsageError(message.rstrip("."), "", f"{command} --help lists what there is")


def _report(error: VccError, *, as_json: bool) -> None:
    try:
        if as_json:
            out_json({"error": error.as_dict()})
            return
    except StorageError:  # standard output cannot be written: that is the error, or comes with it
        abandon(sys.stdout)
    show_error(error)


if __name__ == "__main__":
    main()
