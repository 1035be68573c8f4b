"""Files that a user or a model directory names: opened without waiting, read up to a bound."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_named(file: Path, *, pipes: bool = True) -> BinaryIO:
    """Open for reading; a pipe that nobody writes to is empty, not waited for.

    Args:
        file: such as `vcc.toml`, or `/dev/fd/63` of a shell's `<(command)`.
        pipes: whether anything but a regular file is taken.

    Raises:
        OSError: as `open`; also for a folder, and for what is no regular file where those are
            refused.
    """
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
        if not pipes and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(file))
        os.set_blocking(handle, True)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_named(file: Path, most: int, *, pipes: bool = True) -> bytes:
    """The bytes of a file, or one more than `most` of a larger one.

    Raises:
        OSError: as `open_named`.
    """
    with open_named(file, pipes=pipes) as stream:
        return stream.read(most + 1)
