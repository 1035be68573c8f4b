"""Signing stored artifacts: what this account built, and nothing that others left there."""

from __future__ import annotations

import os

import pytest
from support.stores import blob_path, overwrite
from support.trusting import MAIN

from vcc.cache.blob import Damaged
from vcc.cache.errors import MissingArtifact, StorageError, UsageError
from vcc.cache.pulled import Mark, write_mark
from vcc.cache.root import opened
from vcc.cache.store import Store
from vcc.cache.trust.signature import signatures, verify
from vcc.cache.trust.signing import sign_entry


def stored(site) -> tuple[bytes, ...]:
    with opened(site.root, create=False) as store:
        return signatures(store, site.entry.artifact)


def test_a_signature_lies_beside_the_artifact(site, key):
    made = sign_entry(site.store(), site.entry, key, MAIN)
    (data,) = stored(site)
    assert verify(data, site.entry.id, key.public) == made


def test_what_was_pulled_is_not_signed_by_accident(site, key):
    with opened(site.root, create=True) as store, store.below("tmp", create=True) as own:
        write_mark(store, own, site.entry.artifact, Mark(url="s3://b/c", when=1, by_hand=True))
    with pytest.raises(UsageError, match="was not built by this account") as caught:
        sign_entry(site.store(), site.entry, key, MAIN)
    assert "pulled from s3://b/c" in caught.value.why
    assert "--foreign" in caught.value.hint
    assert stored(site) == ()
    sign_entry(site.store(), site.entry, key, MAIN, foreign=True)
    assert len(stored(site)) == 1


def test_what_others_could_have_written_is_not_signed_by_accident(site, key):
    blob_path(site.root, site.entry.artifact).chmod(0o660)
    with pytest.raises(UsageError, match="was not built by this account"):
        sign_entry(site.store(), site.entry, key, MAIN)


def test_a_damaged_manifest_is_not_signed(site, key):
    path = blob_path(site.root, site.entry.artifact)
    overwrite(path, path.read_bytes() + b" ")
    with pytest.raises(Damaged):
        sign_entry(site.store(), site.entry, key, MAIN)


def test_an_artifact_that_is_not_there_is_not_signed(site, key, tmp_path):
    blob_path(site.root, site.entry.artifact).unlink()
    with pytest.raises(MissingArtifact):
        sign_entry(site.store(), site.entry, key, MAIN)
    with pytest.raises(MissingArtifact, match="there is no store"):
        sign_entry(Store.open(tmp_path / "none"), site.entry, key, MAIN)


def test_a_store_that_cannot_be_written_is_storage_trouble(site, key, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(StorageError, match="cannot sign in the store"):
        sign_entry(site.store(), site.entry, key, MAIN)
    monkeypatch.undo()
    assert stored(site) == ()
    assert site.why("own")
