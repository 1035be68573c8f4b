"""`python -O` and compiling: the command starts itself again with assertions.

Torch's compiler has assertions whose tests change what it does next; without them it makes wrong
code, which goldens would refuse piece by piece. What only boots is fine either way.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

COMMANDS = ("compile",)


def with_assertions(words: Sequence[str]) -> None:
    """Replace this process, for a command that compiles under -O; else return at once.

    Args:
        words: the command line, as it is in `sys.argv`.
    """
    if not sys.flags.optimize or tuple(words[:1]) != COMMANDS or list(words) != sys.argv[1:]:
        return
    from vcc.engine.config.environment import without_optimisation

    environment, changed = without_optimisation()
    head = sys.orig_argv[1 : len(sys.orig_argv) - len(words)]
    kept = [word for word in head if not re.fullmatch("-O+", word)]
    if changed or kept != head:  # else it would only start itself once more
        os.execve(sys.executable, [sys.orig_argv[0], *kept, *words], environment)
