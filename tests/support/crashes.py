"""Work in a child that ends in the middle, as if it was killed: nothing is cleaned up."""

from __future__ import annotations

import os
from collections.abc import Callable

from support.stores import child, exit_of

CALLS = ("mkdir", "link", "rename", "unlink", "rmdir", "write", "fsync", "ftruncate")
KILLED = 9


def ended_at(call: int, work: Callable[[], object]) -> bool:
    """Run `work` in a forked child that ends before its `call`-th change of the disk.

    Returns:
        Whether it ended there; False where the work was done first. Any other end is a failure.
    """

    def dying() -> None:
        left = call
        for name in CALLS:
            real = getattr(os, name)

            def counted(*args, real=real, **kwargs):
                nonlocal left
                left -= 1
                if left <= 0:
                    os._exit(KILLED)
                return real(*args, **kwargs)

            setattr(os, name, counted)
        work()

    code = exit_of(child(dying))
    assert code in (0, KILLED), code
    return code == KILLED
