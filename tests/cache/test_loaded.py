"""Loaded artifacts."""

from __future__ import annotations

import pytest
from support.stores import BLOBS, manifest_of

from vcc.cache.blob import Damaged
from vcc.cache.errors import MissingArtifact
from vcc.cache.loaded import Loaded


def test_an_artifact_in_memory_reads_like_a_stored_one():
    loaded = Loaded.of(manifest_of(), BLOBS)
    assert loaded.read("program") == BLOBS["program"]
    assert loaded.read_all(["program", "golden/0"]).keys() == {"program", "golden/0"}
    assert set(loaded.manifest.blobs) == set(BLOBS)


def test_an_unknown_blob_says_what_there_is():
    with pytest.raises(MissingArtifact, match="program"):
        Loaded.of(manifest_of(), BLOBS).read("no/such")


def test_bytes_that_changed_in_memory_are_not_returned():
    data = bytearray(b"constant")
    loaded = Loaded.of(manifest_of(), {"constant/a": data})
    data[0] ^= 1
    with pytest.raises(Damaged):
        loaded.read("constant/a")
