"""Opening the store that is cared for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vcc.cache.folder import Folder
from vcc.cache.root import opened


@contextmanager
def existing(root: Path) -> Iterator[Folder | None]:
    """The open `v1` folder; None where there is no store yet. Raises as `opened`."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(opened(root, create=False))
        except FileNotFoundError:
            store = None
        yield store
