"""Pushing: content first, the ref last, and what is there and right is not sent again."""

from __future__ import annotations

import pytest
from support.remotes import QUICK, at, pull_one, push_all
from support.stores import BLOBS, assert_intact, blob_path, flipped, overwrite

from vcc.cache.blob import Damaged
from vcc.cache.digest import Digest
from vcc.cache.errors import RemoteError
from vcc.cache.remote.offers import offers
from vcc.cache.remote.patience import Patience
from vcc.cache.remote.push import Push

BIG = Digest.of(BLOBS["piece/0.so"])


def path_of(digest):
    return f"v1/cas/sha256/{str(digest)[:2]}/{digest}"


def test_the_ref_is_put_last_and_names_all_content(kind, source, monkeypatch):
    (entry,) = source.entries()
    with at(kind.fresh()) as remote:
        put, done = type(remote).put, []

        def noted(self, path, data, **named):
            done.append((path, tuple(named.get("keeps", ()))))
            return put(self, path, data, **named)

        monkeypatch.setattr(type(remote), "put", noted)
        loaded = source.load(entry)
        Push(remote, Patience(QUICK)).run(entry, loaded, loaded.manifest.encode(), {})
    paths = [path for path, _ in done]
    assert paths[-2:] == [path_of(entry.id), f"v1/refs/{entry.base.digest}/{entry.artifact}"]
    assert len(done[-1][1]) == len(BLOBS) + 1


def test_a_second_push_sends_nothing(kind, source):
    url = kind.fresh()
    first, second = push_all(source, url)[0], push_all(source, url)[0]
    assert (first.new, first.blobs) == (True, len(BLOBS))
    assert (second.new, second.sent, second.blobs) == (False, 0, 0)


def test_a_push_that_was_cut_off_is_gone_on_with(kind, source, target):
    (entry,) = source.entries()
    url = kind.fresh()
    with at(url) as remote:
        remote.put(path_of(BIG), BLOBS["piece/0.so"])
        assert offers(remote, Patience(QUICK)).entries == ()
    (done,) = push_all(source, url)
    assert done.blobs == len(BLOBS) - 1
    pull_one(target, url, entry)
    assert_intact(target.root, entry)


@pytest.mark.parametrize("kind", ["file", "s3"], indirect=True)
def test_a_blob_of_another_size_on_the_remote_is_replaced(kind, source, target):
    (entry,) = source.entries()
    url = kind.fresh()
    with at(url) as remote:
        remote.put(path_of(BIG), b"short")
    assert push_all(source, url)[0].repaired == 1
    pull_one(target, url, entry)
    assert_intact(target.root, entry)


@pytest.mark.parametrize("kind", ["file", "s3"], indirect=True)
def test_wrong_bytes_of_the_right_size_are_found_by_reading_back(kind, source, target):
    (entry,) = source.entries()
    url = kind.fresh()
    push_all(source, url)
    with at(url) as remote:
        remote.put(path_of(BIG), flipped(BLOBS["piece/0.so"], 9, 3), replace=True)
    assert push_all(source, url)[0].blobs == 0
    with pytest.raises(RemoteError, match="not what its digest says"):
        pull_one(target, url, entry)
    assert push_all(source, url, verify=True)[0].repaired == 1
    pull_one(target, url, entry)
    assert_intact(target.root, entry)


def test_a_registry_refuses_wrong_bytes_itself(oci, source):
    with at(oci.fresh()) as remote:
        remote.put(path_of(BIG), b"other")
        assert remote.size(path_of(BIG)) is None


def test_a_ref_of_other_content_is_replaced(kind, source):
    (entry,) = source.entries()
    url = kind.fresh()
    path = f"v1/refs/{entry.base.digest}/{entry.artifact}"
    with at(url) as remote:
        remote.put(path, b"poison")
    push_all(source, url)
    with at(url) as remote:
        assert offers(remote, Patience(QUICK)).entries == (entry,)


def test_damage_in_the_store_is_not_pushed(kind, source):
    overwrite(blob_path(source.root, BIG), flipped(BLOBS["piece/0.so"], 3, 3))
    url = kind.fresh()
    with pytest.raises(Damaged):
        push_all(source, url)
    with at(url) as remote:
        assert offers(remote, Patience(QUICK)).entries == ()


def test_what_would_be_sent_is_told_without_sending(kind, source):
    (entry,) = source.entries()
    with at(kind.fresh()) as remote:
        push = Push(remote, Patience(QUICK))
        assert len(push.missing(source.load(entry))) == len(BLOBS)
        assert remote.size(path_of(BIG)) is None
        remote.put(path_of(BIG), BLOBS["piece/0.so"])
        assert len(push.missing(source.load(entry))) == len(BLOBS) - 1


def test_a_put_that_loses_the_race_is_content_with_the_same_bytes(kind, source, monkeypatch):
    """412: somebody put it between the look and the put."""
    with at(kind.fresh()) as remote:
        remote.put(path_of(BIG), BLOBS["piece/0.so"])
        size, calls = type(remote).size, []

        def blind(self, path):
            calls.append(path)
            return None if calls.count(path) == 1 else size(self, path)

        monkeypatch.setattr(type(remote), "size", blind)
        (entry,) = source.entries()
        loaded = source.load(entry)
        done = Push(remote, Patience(QUICK)).run(entry, loaded, loaded.manifest.encode(), {})
        assert done.repaired == 0
