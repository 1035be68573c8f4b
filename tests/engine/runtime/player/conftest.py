"""Fixtures of tests on the libcuda double."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import arena, device, fake
from support.step_tables import HIDDEN, VOCAB

from vcc.engine.runtime.player import device as devices

__all__ = ["arena", "device", "fake"]


@pytest.fixture
def double(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The device that a boot opens is the double."""
    monkeypatch.setenv("VCC_LIBCUDA", fake.path)
    devices._opened.cache_clear()
    yield
    devices._opened.cache_clear()


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file with the table's one weight behind 64 other bytes."""
    file = tmp_path / "weights"
    data = np.arange(VOCAB * HIDDEN, dtype=np.uint16)
    file.write_bytes(bytes(64) + data.tobytes())
    return file
