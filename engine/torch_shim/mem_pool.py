"""torch's memory pools on an allocator of another library."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import torch


def mem_pool(library: Path, allocate: str, free: str) -> Any:
    """A pool whose segments come from functions of a library.

    Args:
        library: the shared library.
        allocate, free: its functions, with the signatures that torch's pluggable allocator wants.

    Returns:
        The `torch.cuda.MemPool`. Tensors may outlive it.
    """
    return torch.cuda.MemPool(_allocator(library, allocate, free).allocator())


def use_mem_pool(pool: Any, device: int) -> AbstractContextManager[None]:
    """Inside it, this thread's CUDA tensors of the device are allocated from the pool.

    A graph must not be captured inside: hand the pool's id to `torch.cuda.graph` instead.
    """
    return torch.cuda.use_mem_pool(pool, device)


def has_cuda() -> bool:
    """Whether this torch can make CUDA tensors in this process; creates no context."""
    return torch.cuda.is_available()


@cache
def _allocator(library: Path, allocate: str, free: str) -> Any:
    """One for the whole process: torch keeps a bare pointer to it as long as a segment lives."""
    return torch.cuda.memory.CUDAPluggableAllocator(str(library), allocate, free)
