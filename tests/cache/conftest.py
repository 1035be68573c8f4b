"""Fixtures of the store's tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from vcc.cache.store import Store


@pytest.fixture
def root(tmp_path):
    """Where a store may be made."""
    return tmp_path / "store"


@pytest.fixture
def damages():
    """What `store` reported."""
    return []


@pytest.fixture
def store(root, damages):
    """A store that is not there yet."""
    return Store.open(root, on_damage=damages.append)


@pytest.fixture
def open_tmp():
    """A folder that a child under another account may use; pytest's own is closed to it."""
    folder = Path(tempfile.mkdtemp(prefix="vcc-test-"))
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_root():
    """Skip, with the reason, where the test cannot give files to another account."""
    if os.geteuid() != 0:
        pytest.skip("needs root: files must belong to another account")


@pytest.fixture
def local(tmp_path):
    return tmp_path / "local"


@pytest.fixture
def lower(tmp_path):
    return tmp_path / "lower"
