"""Factories for `module:factory`: a module of Python in a folder, found here and by processes."""

from __future__ import annotations

from pathlib import Path

import pytest


def open_zoo(folder: Path, patch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """Write a module and make its folder the working directory and a place to import from.

    Args:
        folder: gets `name`.py.
        patch: puts everything back at the end of the test.
        name: its own in each test, as imported modules stay.
        text: source code.
    """
    (folder / f"{name}.py").write_text(text)
    patch.chdir(folder)
    patch.syspath_prepend(str(folder))
    patch.setenv("PYTHONPATH", str(folder))
