"""Probes of torch's memory pools: what a build without CUDA can show of them."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from vcc.engine.torch_shim import mem_pool


def test_mem_pool_mem_pool() -> None:
    """The allocator is made of a path and two names, and gives what a pool takes."""
    made = torch.cuda.memory.CUDAPluggableAllocator
    names = list(inspect.signature(made).parameters)
    assert names == ["path_to_so_file", "alloc_fn_name", "free_fn_name"]
    assert callable(made.allocator)
    assert next(iter(inspect.signature(torch.cuda.MemPool.__init__).parameters.items()))
    assert "allocator" in inspect.signature(torch.cuda.MemPool.__init__).parameters
    with pytest.raises(OSError, match="nothing"):
        mem_pool.mem_pool(Path("/nothing.so"), "a", "b")


def test_mem_pool_use_mem_pool() -> None:
    assert list(inspect.signature(torch.cuda.use_mem_pool).parameters) == ["pool", "device"]


def test_mem_pool_has_cuda() -> None:
    assert mem_pool.has_cuda() == torch.cuda.is_available()
