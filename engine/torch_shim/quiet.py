"""Warnings of libraries that vcc calls are no errors of vcc, whatever `python -W error` says.

Torch's compiler warns of parts of torch that are deprecated, some through the standard library's
`copy`. A filter by the module that a warning is attributed to leaves alone what vcc's code and the
user's cause: who calls something deprecated is the one it is attributed to.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

LIBRARIES = ("torch", "triton", "sympy", "numpy", "networkx", "transformers", "typing_extensions")


@contextmanager
def libraries_may_warn() -> Iterator[None]:
    """Inside, and in processes forked inside, a warning of a library is never an error.

    Filters that make no errors stay as they are.
    """
    with warnings.catch_warnings():
        for action, message, category, _, _ in tuple(warnings.filters):
            if action == "error":
                pattern = str(getattr(message, "pattern", message or ""))
                one = category if isinstance(category, type) else Warning
                warnings.filterwarnings("ignore", pattern, one, _modules())
        yield


def _modules() -> str:
    names = "|".join(map(re.escape, (*LIBRARIES, *sorted(sys.stdlib_module_names))))
    return rf"({names})(\.|$)"
