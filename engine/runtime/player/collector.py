"""The garbage collector, kept out of a boot."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collection inside the block.

    What a boot makes are thousands of small objects that stay. They set off collections, of which
    one that looks at all objects of the process takes longer than reading the GEMM store.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
