"""Signals as exceptions that unwind a command, also where the interpreter would lose them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command."""

SOON_S = 0.05
"""Seconds until a signal that was lost is sent again."""


class Terminate(BaseException):
    """Unwinds the stack on a signal, past every `except Exception`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def catch_signals() -> Callable[[], None]:
    """Turn SIGTERM and SIGHUP into an exception, unless the parent had them ignored.

    Returns:
        What puts everything back.
    """
    hook = sys.unraisablehook
    previous: dict[int, Any] = {signal.SIGINT: signal.getsignal(signal.SIGINT)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        if handler is not signal.SIG_IGN:
            previous[number] = handler
            signal.signal(number, _terminate)
    sys.unraisablehook = partial(_send_again, hook)

    def put_back() -> None:
        sys.unraisablehook = hook
        for number, handler in previous.items():
            signal.signal(number, handler)

    return put_back


def ignore_signals() -> None:
    """The command is over and says why: a second Ctrl-C must not cut that short."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminate(signal.Signals(number).name)


def _send_again(otherwise: Callable[[Any], object], lost: Any) -> None:
    """An exception that ended in a callback of the interpreter, such as those around a fork.

    That of a signal would be printed and forgotten, and the command would go on as if nobody had
    asked for its end: the signal comes once more, when the callback is over.
    """
    caught = lost.exc_value
    if isinstance(caught, KeyboardInterrupt):
        number = signal.SIGINT
    elif isinstance(caught, Terminate):
        number = signal.Signals[caught.name]
    else:
        otherwise(lost)
        return
    again = threading.Timer(SOON_S, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()
