"""Trusted remotes are a list of URLs."""

from __future__ import annotations

from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.remotes import change_remotes, is_trusted, read_remotes


def test_remotes_are_added_once_and_removed(place):
    assert change_remotes(place, "s3://a/b", trusted=True)
    assert not change_remotes(place, "s3://a/b", trusted=True)
    assert change_remotes(place, "oci://c/d", trusted=True)
    change_remotes(TrustPlace(place.system, place.system, True), "file:///e", trusted=True)
    assert read_remotes(place) == ("s3://a/b", "oci://c/d", "file:///e")
    assert change_remotes(place, "s3://a/b", trusted=False)
    assert not change_remotes(place, "s3://a/b", trusted=False)
    assert read_remotes(place) == ("oci://c/d", "file:///e")


def test_only_the_very_place_is_trusted():
    trusted = ("s3://a/b",)
    assert is_trusted("s3://a/b/", trusted)
    for url in ("s3://a", "s3://a/b/c", "s3://a/bb", "s3://a/b?endpoint=http://x", "S3://a/b", ""):
        assert not is_trusted(url, trusted)
