"""Warnings of libraries that vcc calls are no errors of vcc, whatever `python -W error` says.

An export that fails prints its graphs before it raises; the error says it, in our words.

Torch's compiler warns of parts of torch that are deprecated, some through the standard library's
`copy`. A filter by the module that a warning is attributed to leaves alone what vcc's code and the
user's cause: who calls something deprecated is the one it is attributed to.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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


_TORCH = Path(getattr(find_spec("torch"), "origin", None) or "torch").parent
EXPORT = str(_TORCH / "export" / "_trace.py")
"""Torch's file whose decorator prints the graph of a failed export on standard error."""
SHAPES = "torch.fx.experimental.symbolic_shapes"
UNFOUND = "Unable to find user code"
"""Logger, and begin of its warning, for a comparison of data: the error names the line."""


@contextmanager
def export_prints_nothing() -> Iterator[None]:
    """Inside, a failed export prints no graph; what a model prints itself is shown as before."""
    logger = logging.getLogger(SHAPES)
    logger.addFilter(_is_told)
    try:
        with redirect_stderr(_WithoutGraphs(sys.stderr)):
            yield
    finally:
        logger.removeFilter(_is_told)


def _is_told(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(UNFOUND)


class _WithoutGraphs:
    """Standard error without what EXPORT writes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        if caller is not None and caller.f_code.co_filename == EXPORT:
            return len(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
