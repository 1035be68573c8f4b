"""URLs: what is read of them, and that nothing secret is ever shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import UsageError
from vcc.cache.remote.url import is_loopback, is_public, parse_url, scrubbed

CANARY = "canary-5c1f"


@pytest.mark.parametrize(
    "text",
    [
        "file:///mnt/share/vcc",
        "s3://bucket/pre/fix?endpoint=http://127.0.0.1:5000&region=us-east-1",
        "s3://bucket",
        "gs://bucket/prefix",
        "az://container/prefix?account=name",
        "oci://registry.example:5000/team/cache?tls=off",
        "oci://[::1]:5000/team/cache",
    ],
)
def test_a_url_without_secrets_is_shown_as_it_is(text):
    assert parse_url(text).shown == text


def test_the_user_of_a_registry_is_read_and_not_shown():
    url = parse_url(f"oci://me:{CANARY}@ghcr.io/team/cache")
    assert url.user == ("me", CANARY)
    assert CANARY not in url.shown + repr(url)


def test_a_last_slash_makes_no_other_remote():
    assert parse_url("s3://b/p/").shown == parse_url("s3://b/p").shown
    assert parse_url("file:///mnt/x/").shown == parse_url("file:///mnt/x").shown


@pytest.mark.parametrize(
    "text",
    [
        f"s3://{CANARY}:{CANARY}@bucket/x",
        f"s3://bucket/x?secret={CANARY}",
        f"s3://bucket/x?{CANARY}=1",
        f"s3://bucket/x?region={CANARY}&region={CANARY}",
        f"file://host{CANARY}/x",
        f"ftp://host/{CANARY}",
        f"s3://bucket/../{CANARY}",
        f"s3://bucket/x#{CANARY}",
        f"s3:///{CANARY}",
        f"oci://host/Upper{CANARY}",
        f"oci://host/x?tls={CANARY}",
        f"oci://host:{CANARY}/x",
        f"oci://[{CANARY}/x",
        f"s3://b/{CANARY}" + "x" * 2048,
        f"file:relative{CANARY}",
        CANARY,
        "",
        "file://",
        "file:///",
        "file://localhost",
    ],
)
def test_what_is_no_url_of_a_remote_is_refused_without_showing_it(text):
    with pytest.raises(UsageError) as caught:
        parse_url(text)
    assert CANARY not in str(caught.value.as_dict())


def test_an_endpoint_is_shown_without_its_user():
    url = parse_url(f"s3://b/x?endpoint=http://u:{CANARY}@minio:9000")
    assert url.shown == "s3://b/x?endpoint=http://minio:9000"


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_a_usage_error(text):
    for head in ("", "s3://", "oci://h/", "file:///"):
        try:
            parse_url(head + text)
        except UsageError:
            continue


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"GET https://u:{CANARY}@h/p?X-Amz-Signature={CANARY} failed", "GET https://h/p failed"),
        (f"Authorization: Bearer {CANARY}", "Authorization: Bearer …"),
        (f"basic {CANARY}==", "basic …"),
        ("two\nlines\x1b[31m", "two lines [31m"),
    ],
)
def test_text_for_messages_is_scrubbed(text, shown):
    assert scrubbed(text) == shown


def test_long_text_is_cut():
    assert len(scrubbed("x" * 1000)) == 300


@pytest.mark.parametrize(
    "host", ["ghcr.io", "8.8.8.8:443", "registry.example.com", "[2001:4860::1]"]
)
def test_hosts_of_the_internet_are_public(host):
    assert is_public(host)


@pytest.mark.parametrize(
    "host",
    ["localhost:5000", "127.0.0.1", "10.1.2.3:5000", "registry", "r.svc.cluster.local", "[::1]:1"],
)
def test_hosts_of_a_site_are_not_public(host):
    assert not is_public(host)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.9.9.9:1", True), ("[::1]:5", True), ("10.0.0.1", False)],
)
def test_loopback_is_told_by_name(host, loopback):
    assert is_loopback(host) == loopback
