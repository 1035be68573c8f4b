"""Pieces for the CPU compile on a machine with a GPU, in forks that cannot start CUDA."""

from __future__ import annotations

import pytest
import torch
from support.toys import rows, traced

from vcc.engine.compile.pool import compile_pieces
from vcc.engine.config.inductor_options import option_pairs
from vcc.engine.events import NullEvents
from vcc.engine.partition.split import split
from vcc.engine.torch_shim.inductor import merged_options


def no_cuda_in_a_fork(*_: object, **__: object) -> None:
    raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")


def pretend_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that shows up when asked for, and fails when it is used, as in a fork."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state", no_cuda_in_a_fork)
    monkeypatch.setattr(torch.cuda, "_lazy_init", no_cuda_in_a_fork)


def test_a_worker_leaves_the_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced(lambda _, x: x * 2, {"x": rows(6)}, {"x": {0: "T"}}, {"T": (1, 8)})
    options = merged_options("x86-64-v3", {})
    pieces = split(graph, (), option_pairs(options)).unique
    pretend_a_gpu(monkeypatch)
    (compiled,) = compile_pieces(pieces, options, 1, NullEvents())
    assert compiled.library[:4] == b"\x7fELF"
    assert torch.cuda.is_available(), "the parent's view has changed"
