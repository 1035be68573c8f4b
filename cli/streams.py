"""Standard streams that cannot show a character, are closed, or lead to a full disk."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def write(stream: TextIO, text: str) -> None:
    """Write a text; a character that the stream cannot show becomes an escape.

    Raises:
        OSError: the stream takes no bytes.
    """
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def tell(text: str) -> None:
    """Write to standard error; what it does not take, such as a log on a full disk, ends nothing.

    Raises:
        BrokenPipeError: who read it has left.
    """
    if sys.stderr is None:  # closed by who started us
        return
    try:
        write(sys.stderr, text)
    except BrokenPipeError:
        raise
    except OSError:  # there is no other place where it could be said
        return


def end_streams() -> None:
    """Drop what a stream did not take: Python would try again at its end, and exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            abandon(stream)


def abandon(stream: TextIO | None) -> None:
    """What is still buffered goes nowhere."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
