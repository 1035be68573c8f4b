"""A bucket: conditions, prefixes, credentials that are looked up again."""

from __future__ import annotations

import pytest
from support import chaos_proxy as spoils
from support.remotes import QUICK, at, pull_one, push_all
from support.stores import assert_intact

from vcc.cache.errors import RemoteError, UsageError
from vcc.cache.remote.base import Absent, Denied
from vcc.cache.remote.bucket import MAX_PUT, Bucket
from vcc.cache.remote.url import parse_url


def body(remote, path, **named):
    parts = []
    remote.get(path, parts.append, **{"limit": 1000, **named})
    return b"".join(parts)


def test_what_is_put_is_there_once(s3):
    with at(s3.fresh()) as remote:
        assert remote.size("v1/a/b") is None
        assert remote.put("v1/a/b", b"one")
        assert not remote.put("v1/a/b", b"two")
        assert body(remote, "v1/a/b") == b"one"
        assert remote.put("v1/a/b", b"three", replace=True)
        assert body(remote, "v1/a/b", start=2) == b"ree"
        assert remote.size("v1/a/b") == 5


def test_a_put_is_conditional_on_the_wire(s3):
    with s3.spoilt() as (url, proxy), at(url) as remote:
        remote.put("v1/a", b"one")
        remote.put("v1/a", b"two", replace=True)
    puts = [one.headers.get("if-none-match") for one in proxy.asked if one.method == "PUT"]
    assert puts == ["*", None]


def test_two_prefixes_of_a_bucket_do_not_see_each_other(s3):
    one, two = s3.fresh(), s3.fresh()
    with at(one) as first, at(two) as second:
        first.put("v1/refs/a/b", b"x")
        assert list(first.paths("v1/refs/")) == ["v1/refs/a/b"]
        assert list(second.paths("v1/refs/")) == []


def test_a_listing_has_all_pages(s3):
    with at(s3.fresh()) as remote:
        for number in range(30):
            remote.put(f"v1/refs/{number}", b"")
        assert len(set(remote.paths("v1/refs/"))) == 30


def test_what_is_not_there_is_absent(s3):
    with at(s3.fresh()) as remote, pytest.raises(Absent):
        body(remote, "v1/nothing")


@pytest.mark.parametrize("code", [501, 400])
def test_a_store_without_conditions_is_looked_at_first(s3, source, target, code):
    """501 is how such stores answer; the client calls a 400 final, so nothing is overwritten."""
    (entry,) = source.entries()
    with s3.spoilt() as (url, proxy):
        proxy.spoil, proxy.forward = spoils.status(code), False
        proxy.only = lambda asked: "if-none-match" in asked.headers
        if code == 400:
            with pytest.raises(RemoteError, match="status 400"):
                push_all(source, url)
            return
        assert push_all(source, url)[0].new
        with at(url) as remote:
            assert not remote.put("v1/refs/x", b"one") or not remote.put("v1/refs/x", b"two")
            assert body(remote, "v1/refs/x") == b"one"
        pull_one(target, url, entry)
    assert_intact(target.root, entry)


@pytest.mark.parametrize("code", [401, 403])
def test_credentials_are_looked_up_once_more_when_they_are_refused(s3, source, target, code):
    (entry,) = source.entries()
    with s3.spoilt() as (url, proxy):
        push_all(source, url)
        proxy.spoil, proxy.times = spoils.status(code), 1
        proxy.only = lambda asked: asked.method == "GET" and "cas" in asked.path
        pull_one(target, url, entry)
    assert_intact(target.root, entry)


def test_new_credentials_of_the_environment_are_taken_up(s3, monkeypatch):
    with s3.spoilt() as (url, proxy), at(url) as remote:
        remote.put("v1/a", b"x")
        assert remote.size("v1/a") == 1
        proxy.spoil, proxy.times = spoils.status(403), 1
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANEWKEY")
        assert remote.size("v1/a") == 1
        assert ["AKIANEWKEY" in one.path for one in proxy.asked[-2:]] == [False, True]


def test_a_listing_without_rights_is_denied(s3):
    with s3.spoilt() as (url, proxy), at(url) as remote:
        proxy.spoil = spoils.status(403)
        with pytest.raises(Denied):
            list(remote.paths("v1/"))


def test_a_bucket_that_is_not_there_is_no_miss(s3, source):
    url = s3.fresh().replace("s3://cache/", "s3://nothing/")
    with pytest.raises(RemoteError, match="no such bucket"):
        push_all(source, url)
    with at(url) as remote, pytest.raises(RemoteError, match="no such bucket"):
        list(remote.paths("v1/"))


def test_a_blob_over_the_size_of_one_put_is_refused(s3):
    class Large(bytes):
        def __len__(self):
            return MAX_PUT + 1

    with at(s3.fresh()) as remote, pytest.raises(RemoteError, match="too large"):
        remote.put("v1/a", Large())


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_other_clouds_are_opened_by_the_same_client(scheme, monkeypatch):
    """Opened and named only: nothing here speaks their protocols."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    with at(f"{scheme}://bucket/prefix") as remote:
        assert isinstance(remote, Bucket)
        assert remote.url == f"{scheme}://bucket/prefix"
        assert remote.public


def test_an_endpoint_that_is_no_web_address_is_refused():
    with pytest.raises(UsageError, match="endpoint"), at("s3://b?endpoint=ftp://x"):
        pass


def test_whose_bucket_is_public_is_told_by_its_endpoint():
    for endpoint, public in (("http://127.0.0.1:1", False), ("https://s3.example.com", True)):
        assert Bucket(parse_url(f"s3://b?endpoint={endpoint}"), QUICK).public == public
