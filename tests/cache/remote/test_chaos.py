"""Answers that are spoilt on their way: another attempt helps, or nothing is visible."""

from __future__ import annotations

import time

import pytest
from support import chaos_proxy as spoils
from support.remotes import QUICK, at, pull_one, push_all, visible
from support.stores import BLOBS, assert_intact

from vcc.cache.digest import Digest
from vcc.cache.errors import RemoteError, VccError
from vcc.cache.remote.base import Denied
from vcc.cache.remote.http import Elsewhere
from vcc.cache.remote.offers import offers
from vcc.cache.remote.patience import Limits, Patience

BIG = Digest.of(BLOBS["piece/0.so"]).hex


def of_big(asked):
    return asked.method == "GET" and BIG in asked.path


def behind(networked, source):
    """A remote behind a proxy, with the artifact pushed."""

    class Behind:
        def __enter__(self):
            self.context = networked.spoilt()
            self.url, self.proxy = self.context.__enter__()
            push_all(source, self.url)
            self.proxy.asked.clear()
            return self.url, self.proxy

        def __exit__(self, *error):
            return self.context.__exit__(*error)

    return Behind()


PASSING = {
    "cut off, with its length": spoils.cut_off(100),
    "cut off, without a length": spoils.cut_off(100, length=False),
    "cut off in a chunk": spoils.chunked_cut_off(100),
    "reset at byte 0": spoils.reset_at(0),
    "reset at byte 100": spoils.reset_at(100),
    "500": spoils.status(500),
    "503, to be asked again": spoils.status(503, Retry_After="1"),
    "429, to be asked again": spoils.status(429, Retry_After="0"),
}


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_tried_again(networked, source, target, name):
    (entry,) = source.entries()
    with behind(networked, source) as (url, proxy):
        proxy.spoil, proxy.only, proxy.times = PASSING[name], of_big, 2
        done = pull_one(target, url, entry)
        assert done.blobs == len(BLOBS)
        assert len([one for one in proxy.asked if of_big(one)]) == 3
    assert_intact(target.root, entry)
    assert visible(target) == [entry.artifact]


def test_a_burst_of_failures_on_every_path_is_passed(networked, source, target):
    (entry,) = source.entries()
    with behind(networked, source) as (url, proxy):
        proxy.spoil, proxy.times = spoils.status(502), 2
        pull_one(target, url, entry)
    assert_intact(target.root, entry)


def test_a_download_goes_on_where_it_was_cut_off(networked, source, target):
    (entry,) = source.entries()
    with behind(networked, source) as (url, proxy):
        proxy.spoil, proxy.only, proxy.times = spoils.cut_off(1000), of_big, 1
        done = pull_one(target, url, entry)
        ranges = [one.headers.get("range") for one in proxy.asked if of_big(one)]
    assert ranges == [None, "bytes=1000-"]
    assert done.received == sum(map(len, BLOBS.values()))


FINAL = {
    "other bytes, same length": (spoils.other_bytes(), RemoteError, "not what its digest says"),
    "a login page": (spoils.page(), RemoteError, "ended early|too long"),
    "an endless body": (spoils.endless(), RemoteError, "too long"),
    "404": (spoils.status(404), VccError, "does not have it"),
    "401": (spoils.status(401), Denied, "refuse|let us in"),
    "403": (spoils.status(403), Denied, "refuse|let us in"),
    "418": (spoils.status(418), RemoteError, "status 418"),
    "always 503": (spoils.status(503), RemoteError, "tried 3 times"),
    "wait an hour": (spoils.status(503, Retry_After="3600"), RemoteError, "asks to wait 3600 s"),
    "another host": (spoils.status(302, Location="http://localhost:1/x"), Elsewhere, "localhost"),
    "a file": (spoils.status(302, Location="file:///etc/passwd"), Elsewhere, "lead to another"),
    "the metadata of a cloud": (
        spoils.status(307, Location="http://169.254.169.254/latest/meta-data/"),
        Elsewhere,
        "169.254.169.254",
    ),
}


@pytest.mark.parametrize("name", FINAL)
def test_what_does_not_pass_ends_and_leaves_nothing(networked, source, target, name):
    spoil, kind, text = FINAL[name]
    (entry,) = source.entries()
    with behind(networked, source) as (url, proxy):
        proxy.spoil, proxy.only = spoil, of_big
        with pytest.raises(kind, match=text):
            pull_one(target, url, entry)
    assert visible(target) == []
    assert_intact(source.root, entry)


def test_a_long_page_is_called_one(networked, source, target):
    (entry,) = source.entries()
    long_page = spoils.status(200, spoils.PAGE * 100, Content_Type="text/html")
    with behind(networked, source) as (url, proxy):
        proxy.spoil, proxy.only = long_page, of_big
        with pytest.raises(RemoteError, match="a login"):
            pull_one(target, url, entry)


def test_wrong_bytes_name_the_blob_and_the_next_pull_is_clean(networked, source, target):
    (entry,) = source.entries()
    with behind(networked, source) as (url, proxy):
        proxy.spoil, proxy.only, proxy.times = spoils.other_bytes(), of_big, 1
        with pytest.raises(RemoteError, match=BIG[:12]):
            pull_one(target, url, entry)
        pull_one(target, url, entry)
    assert_intact(target.root, entry)


def test_a_body_that_stalls_is_given_up(networked, source, target):
    (entry,) = source.entries()
    begun = time.monotonic()
    with behind(networked, source) as (url, proxy):
        proxy.spoil, proxy.only = spoils.slow(3.0, 10), of_big
        limits = Limits(1, 0.3, 10, attempts=2, first_wait_s=0.01)
        with pytest.raises(RemoteError, match="nothing came in time"):
            pull_one(target, url, entry, limits=limits)
    assert time.monotonic() - begun < 8
    assert visible(target) == []


def test_a_body_that_drips_is_given_up_when_the_time_is_over(networked, source, target):
    (entry,) = source.entries()
    with behind(networked, source) as (url, proxy):
        proxy.spoil, proxy.only = spoils.slow(0.05, 10), of_big
        begun = time.monotonic()
        with pytest.raises(RemoteError, match="took too long"):
            pull_one(target, url, entry, limits=Limits(1, 1, 1.5, attempts=2))
        assert time.monotonic() - begun < 4
    assert visible(target) == []


def test_a_slow_body_that_comes_in_time_is_waited_for(networked, source, target):
    (entry,) = source.entries()
    with behind(networked, source) as (url, proxy):
        proxy.spoil, proxy.only = spoils.slow(0.05, 500), of_big
        pull_one(target, url, entry)
    assert_intact(target.root, entry)


LISTINGS = {
    "503": (spoils.status(503), RemoteError),
    "401": (spoils.status(401), Denied),
    "another host": (spoils.status(302, Location="http://localhost:1/x"), RemoteError),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_that_is_spoilt_is_an_error_and_no_empty_one(networked, source, name):
    spoil, kind = LISTINGS[name]
    with behind(networked, source) as (url, proxy):
        proxy.spoil = spoil
        with at(url) as remote, pytest.raises(kind):
            offers(remote, Patience(QUICK))


PAGES = {
    "of its kind": spoils.page(),
    "of no kind": spoils.status(200, b"\n<!DOCTYPE html><title>Log in</title>", Server="x"),
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("everywhere", [True, False], ids=["everywhere", "for a listing"])
def test_a_page_in_place_of_a_listing_is_an_error(networked, source, name, everywhere):
    """S3's client reads a page as an empty listing."""
    what = "web page" if networked.name == "s3" else "no list of tags"
    with behind(networked, source) as (url, proxy):
        proxy.spoil = PAGES[name]
        proxy.only = (lambda asked: True) if everywhere else _is_listing
        with at(url) as remote, pytest.raises(RemoteError, match=what):
            offers(remote, Patience(QUICK))


def _is_listing(asked):
    return "list-type" in asked.path or "tags/list" in asked.path


def test_an_empty_listing_is_one(networked):
    with at(networked.fresh()) as remote:
        assert offers(remote, Patience(QUICK)).entries == ()


@pytest.mark.parametrize("code", [500, 503])
def test_a_push_passes_a_burst_of_failures(networked, source, target, code):
    (entry,) = source.entries()
    with networked.spoilt() as (url, proxy):
        proxy.spoil, proxy.times = spoils.status(code), 2
        (done,) = push_all(source, url)
        assert done.new
        pull_one(target, url, entry)
    assert_intact(target.root, entry)


@pytest.mark.parametrize("code", [403, 507, 503])
def test_a_push_that_fails_leaves_no_ref(networked, source, code):
    with networked.spoilt() as (url, proxy):
        proxy.spoil = spoils.status(code)
        proxy.only, proxy.forward = lambda asked: asked.method == "PUT", False
        with pytest.raises(RemoteError):
            push_all(source, url)
        proxy.spoil = None
        with at(url) as remote:
            assert offers(remote, Patience(QUICK)).entries == ()
        (done,) = push_all(source, url)
        assert done.new


def test_a_push_is_not_sent_elsewhere(networked, source):
    with networked.spoilt() as (url, proxy):
        proxy.spoil = spoils.status(307, Location="http://localhost:1/x")
        proxy.only = lambda asked: asked.method in ("PUT", "POST")
        with pytest.raises(RemoteError):
            push_all(source, url)
