"""Stores with something in them, and a clock that can be set."""

from __future__ import annotations

import time

import pytest
from support.stores import BLOBS, manifest_of, quiet


@pytest.fixture
def root(fast_tmp):
    """Where a store may be made; in memory, where syncing costs nothing."""
    return fast_tmp / "store"


@pytest.fixture
def later(monkeypatch):
    """Set the store's clock that many seconds ahead (or back)."""

    def set_clock(seconds: float) -> None:
        for module in ("sweep", "remove", "prune", "repair", "room", "stats", "pins"):
            name = f"vcc.cache.care.{module}.now_of"
            monkeypatch.setattr(name, lambda store: time.time() + seconds)

    return set_clock


@pytest.fixture
def two(root):
    """Two artifacts that share all blobs but one."""
    store = quiet(root)
    first = store.publish(manifest_of("full", 1), BLOBS)
    second = store.publish(manifest_of("none", 2), {**BLOBS, "program": b"another"})
    return first, second
