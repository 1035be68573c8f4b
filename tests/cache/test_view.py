"""Blobs as views: the same bytes and the same refusals as reading them."""

from __future__ import annotations

import os

import pytest
from support.stores import BLOBS, blob_path, flipped, manifest_of, overwrite, quiet

from vcc.cache.blob import Damaged
from vcc.cache.errors import MissingArtifact
from vcc.cache.loaded import Loaded
from vcc.cache.view import LARGE

BIG = os.urandom(LARGE + 12_345)
CONTENT = {**BLOBS, "constant/big": BIG}


@pytest.fixture
def loaded(root):
    store = quiet(root)
    return store.load(store.publish(manifest_of(), CONTENT))


def place(root, loaded):
    return blob_path(root, loaded.manifest.blobs["constant/big"].sha256)


def test_views_are_the_bytes_and_cannot_be_written(loaded):
    views = loaded.view_all()
    assert views == CONTENT
    with pytest.raises(TypeError):
        views["constant/big"][0] = 0
    assert loaded.verified.bytes == loaded.manifest.size + len(loaded.manifest.encode())


def test_views_of_an_artifact_in_memory():
    assert Loaded.of(manifest_of(), CONTENT).view_all() == CONTENT


@pytest.mark.parametrize("full", [False, True], ids=["xxh3", "sha256"])
@pytest.mark.parametrize("at", [0, LARGE // 2, len(BIG) - 1])
def test_a_flipped_bit_is_seen(root, loaded, at, full):
    overwrite(place(root, loaded), flipped(BIG, at, 3))
    store = quiet(root)
    with pytest.raises(Damaged, match="does not match"):
        store.load(next(store.entries()), full=full).view_all(["constant/big"])


@pytest.mark.parametrize("data", [b"", BIG[:-1], BIG + b"\0"], ids=["empty", "cut", "longer"])
def test_another_size_is_damage(root, loaded, data):
    overwrite(place(root, loaded), data)
    with pytest.raises(Damaged, match="expected"):
        loaded.view_all(["constant/big"])


def test_what_is_gone_is_a_miss(root, loaded):
    place(root, loaded).unlink()
    with pytest.raises(MissingArtifact):
        loaded.view_all(["constant/big"])


def test_a_file_cut_while_it_is_read_is_damage(root, loaded, monkeypatch):
    real = os.readv

    def cut(fd, buffers):
        os.truncate(place(root, loaded), 1000)
        return real(fd, buffers)

    monkeypatch.setattr(os, "readv", cut)
    with pytest.raises(Damaged, match="expected"):
        loaded.view_all(["constant/big"])


def test_short_reads_are_continued(loaded, monkeypatch):
    real = os.readv
    monkeypatch.setattr(os, "readv", lambda fd, buffers: real(fd, [buffers[0][:500_001]]))
    assert loaded.view_all(["constant/big"]) == {"constant/big": BIG}


def test_a_file_cut_afterwards_changes_nothing(root, loaded):
    (view,) = loaded.view_all(["constant/big"]).values()
    os.truncate(place(root, loaded), 0)
    assert view == BIG
