"""Fixtures of the operator tests: random inputs differ by run, the seed is printed on failure."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
import torch

from vcc.engine import native
from vcc.engine.ops.register import load_ops


@pytest.fixture(autouse=True)
def fresh_inputs() -> None:
    """Seed torch from the system's entropy and leave the seed in the captured output."""
    print("torch seed", torch.seed())


@pytest.fixture(scope="session")
def ops() -> object:
    """`torch.ops.vcc`, loaded."""
    load_ops()
    return torch.ops.vcc


@pytest.fixture(scope="session")
def compiled(ops: object) -> object:
    """`torch.ops.vcc` of the compiled kernels; skips where the install had no compiler."""
    backend = load_ops()
    if backend.name != "cpu":
        pytest.skip(backend.reason)
    return ops


@pytest.fixture(params=[4, 3, 2])
def level(request: pytest.FixtureRequest, compiled: object) -> Iterator[int]:
    """Each kernel variant that this CPU can run, in turn."""
    path = native.library("vcc_ops")
    use_level = ctypes.CDLL(str(path)).vcc_ops_use_level
    used = use_level(request.param)
    if used not in (request.param, 0):
        use_level(4)
        pytest.skip(f"this CPU runs x86-64 level {used} at most")
    yield used
    use_level(4)
