"""Signatures are carried as they are; a later one of the same key replaces an earlier one."""

from __future__ import annotations

import pytest
from support.remotes import pull_one, push_all
from support.stores import BLOBS, manifest_of

from vcc.cache.publish import own_folder
from vcc.cache.remote.signatures import put_signature
from vcc.cache.root import opened
from vcc.cache.store import Store
from vcc.cache.trust.secretkey import write_new
from vcc.cache.trust.signature import Terms, sign, signature_files


@pytest.fixture
def key(tmp_path):
    return write_new(tmp_path / "key")


def signed(key, entry, now, **terms):
    """The bytes of a signature."""
    return sign(key, entry.id, Terms(**terms), now=now).encode()


def put(store, entry, key, data):
    with opened(store.root, create=True) as folder, own_folder(folder) as own:
        put_signature(folder, own, entry.id, key.public, data)


def have(store, entry):
    with opened(store.root, create=False) as folder:
        return signature_files(folder, entry.artifact)


def test_signatures_travel_with_the_artifact(kind, source, target, key):
    (entry,) = source.entries()
    data = signed(key, entry, 1_800_000_000)
    put(source, entry, key, data)
    url = kind.fresh()
    push_all(source, url)
    pull_one(target, url, entry)
    assert have(target, entry) == {key.public: data}


def test_a_later_signature_of_the_same_key_is_taken(kind, source, target, key):
    (entry,) = source.entries()
    early, late = (signed(key, entry, now) for now in (1_800_000_000, 1_800_000_001))
    put(source, entry, key, early)
    url = kind.fresh()
    push_all(source, url)
    pull_one(target, url, entry)
    put(source, entry, key, late)
    push_all(source, url)
    pull_one(target, url, entry)
    assert have(target, entry) == {key.public: late}


def test_an_earlier_one_is_not(source, key):
    (entry,) = source.entries()
    early, late = (signed(key, entry, now) for now in (1_800_000_000, 1_800_000_001))
    put(source, entry, key, late)
    put(source, entry, key, early)
    assert have(source, entry) == {key.public: late}


@pytest.mark.parametrize("data", [b"", b"{}", b"x" * 100])
def test_what_is_no_signature_replaces_none(source, key, data):
    (entry,) = source.entries()
    good = signed(key, entry, 1_800_000_000)
    put(source, entry, key, good)
    put(source, entry, key, data)
    assert have(source, entry) == {key.public: good}


def test_a_signature_over_another_artifact_replaces_none(source, key, tmp_path):
    (entry,) = source.entries()
    other = Store.open(tmp_path / "o").publish(manifest_of("none"), BLOBS)
    good = signed(key, entry, 1_800_000_000)
    put(source, entry, key, good)
    put(source, entry, key, signed(key, other, 1_900_000_000))
    assert have(source, entry) == {key.public: good}


def test_a_good_signature_takes_the_place_of_a_damaged_one(source, key):
    (entry,) = source.entries()
    put(source, entry, key, b"damaged")
    good = signed(key, entry, 1_800_000_000)
    put(source, entry, key, good)
    assert have(source, entry) == {key.public: good}


def test_at_most_sixteen_are_carried(source, target, tmp_path):
    (entry,) = source.entries()
    url = f"file://{tmp_path}/r"
    push_all(source, url)
    place = tmp_path / "r" / "v1" / "signatures" / entry.artifact
    place.mkdir(parents=True)
    for number in range(40):
        (place / f"{number:064x}").write_bytes(b"x")
    (place / "README").write_bytes(b"x")
    pull_one(target, url, entry)
    assert len(have(target, entry)) == 16


def test_a_signature_that_is_too_long_is_refused(source, target, tmp_path):
    from vcc.cache.errors import RemoteError

    (entry,) = source.entries()
    url = f"file://{tmp_path}/r"
    push_all(source, url)
    place = tmp_path / "r" / "v1" / "signatures" / entry.artifact
    place.mkdir(parents=True)
    (place / ("ab" * 32)).write_bytes(bytes(1 << 20))
    with pytest.raises(RemoteError, match="too long"):
        pull_one(target, url, entry)
