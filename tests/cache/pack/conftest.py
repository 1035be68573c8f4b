"""Packs in memory."""

from __future__ import annotations

import os

import pytest
from support.packs import pack_of
from support.stores import BLOBS, manifest_of

from vcc.cache.store import Store


@pytest.fixture
def source(tmp_path):
    """A store with two artifacts that share blobs."""
    store = Store.open(tmp_path / "source")
    store.publish(manifest_of(), BLOBS)
    store.publish(manifest_of("none"), {**BLOBS, "constant/more": os.urandom(200)})
    return store


@pytest.fixture
def target(tmp_path):
    """A store that is not there yet."""
    return Store.open(tmp_path / "target")


@pytest.fixture
def packed(source):
    """A pack of both."""
    return pack_of(source)
