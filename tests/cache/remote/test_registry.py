"""A registry: what it keeps, logins, tokens, and a registry that lies."""

from __future__ import annotations

import base64
import json
from collections import Counter

import pytest
from support import chaos_proxy as spoils
from support.remotes import QUICK, at, pull_one, push_all
from support.servers import registry
from support.stores import BLOBS, assert_intact

from vcc.cache.digest import Digest
from vcc.cache.errors import RemoteError, UsageError
from vcc.cache.remote.base import Absent, Blob, Denied
from vcc.cache.remote.tags import MANIFEST_TYPE, tag_of

PASSWORD = "canary-registry-pw"
HASHED = "$2b$04$h3r5oBXXsBPv9YwMLqpEJujgkFdfsUysXoi0eIDtTJBRvIa91GtoO"
REF = f"v1/refs/{'a' * 64}/{'b' * 64}"


def body(remote, path, **named):
    parts = []
    remote.get(path, parts.append, **{"limit": 1000, **named})
    return b"".join(parts)


def test_small_files_are_there_once(oci):
    with at(oci.fresh()) as remote:
        assert remote.size(REF) is None
        assert remote.put(REF, b"one")
        assert not remote.put(REF, b"two")
        assert body(remote, REF) == b"one"
        assert remote.put(REF, b"three", replace=True)
        assert body(remote, REF) == b"three"
        assert list(remote.paths("v1/refs/")) == [REF]


def test_a_repository_that_is_not_there_is_empty(oci):
    with at(oci.fresh()) as remote:
        assert list(remote.paths("v1/refs/")) == []
        with pytest.raises(Absent):
            body(remote, REF)


def test_a_ref_names_its_blobs_so_that_the_registry_keeps_them(oci):
    with at(oci.fresh()) as remote:
        digest = Digest.of(b"blob")
        remote.put(f"v1/cas/sha256/{digest.hex[:2]}/{digest}", b"blob")
        remote.put(REF, b"ref", keeps=(Blob(digest, 4),))
        url, accept = f"{remote._api}/manifests/{tag_of(REF)}", {"Accept": MANIFEST_TYPE}
        with remote._answer("GET", url, "reading", headers=accept) as response:
            layers = json.loads(response.content)["layers"]
    assert f"sha256:{digest}" in [one["digest"] for one in layers]


def test_many_tags_come_in_pages(oci):
    """docker-registry 2.8 gives all tags at once; others do not."""
    tags = [tag_of(f"v1/refs/{'a' * 64}/{number:064x}") for number in range(10)]

    def pages(handler, answer):
        start = int(handler.path.partition("last=")[2] or 0)
        end = start + 3
        following = f'<{handler.path.partition("?")[0]}?n=3&last={end}>; rel="next"'
        body = json.dumps({"tags": tags[start:end]}).encode()
        headers = {"Link": following} if end < len(tags) else {}
        handler.pass_on(spoils.Answer(200, headers, body))

    with oci.spoilt() as (url, proxy), at(url) as remote:
        proxy.spoil = pages
        assert len(set(remote.paths("v1/refs/"))) == 10
        assert len(proxy.asked) == 4


def test_a_listing_that_does_not_end_is_ended(oci, monkeypatch):
    monkeypatch.setattr("vcc.cache.remote.registry.MAX_PAGES", 5)
    page = spoils.status(200, b'{"tags":["x"]}', Link='</v2/x/tags/list?last=x>; rel="next"')
    with oci.spoilt() as (url, proxy), at(url) as remote:
        proxy.spoil = page
        with pytest.raises(RemoteError, match="does not end"):
            list(remote.paths("v1/refs/"))
        assert len(proxy.asked) == 5


def test_the_next_page_is_asked_of_the_same_place(oci):
    page = spoils.status(200, b'{"tags":[]}', Link='<http://evil.example/x?last=1>; rel="next"')
    with oci.spoilt() as (url, proxy), at(url) as remote:
        proxy.spoil, proxy.times = page, 1
        list(remote.paths("v1/refs/"))
        assert proxy.asked[1].path.endswith("/tags/list?last=1")


@pytest.mark.parametrize("text", [b"[]", b"null", b"<html>", b'{"tags":7}', b"\xff"])
def test_a_listing_that_is_none_is_refused_or_empty(oci, text):
    with oci.spoilt() as (url, proxy), at(url) as remote:
        proxy.spoil = spoils.status(200, text)
        with pytest.raises(RemoteError, match="no list of tags"):
            list(remote.paths("v1/refs/"))


def test_right_bytes_under_a_wrong_digest_header_are_right(oci, source, target):
    (entry,) = source.entries()

    def lie(handler, answer):
        headers = {**answer.headers, "Docker-Content-Digest": f"sha256:{'0' * 64}"}
        handler.pass_on(spoils.Answer(answer.status, headers, answer.body))

    with oci.spoilt() as (url, proxy):
        push_all(source, url)
        proxy.spoil = lie
        pull_one(target, url, entry)
    assert_intact(target.root, entry)


def test_an_upload_is_not_sent_to_another_host(oci, source):
    away = spoils.status(202, Location="http://localhost:1/upload")
    with oci.spoilt() as (url, proxy):
        proxy.spoil, proxy.only = away, lambda asked: asked.method == "POST"
        with pytest.raises(RemoteError, match="sends us to http://localhost"):
            push_all(source, url)


def test_a_token_is_not_asked_of_another_host(oci):
    """A registry names the place of its tokens; a password would go there."""
    realm = 'Bearer realm="http://169.254.169.254/token",service="x"'
    with oci.spoilt() as (url, proxy), at(url) as remote:
        proxy.spoil = spoils.status(401, WWW_Authenticate=realm)
        with pytest.raises(RemoteError, match=r"169\.254\.169\.254"):
            list(remote.paths("v1/refs/"))


class Tokens:
    """A registry that gives tokens and takes the first for few requests, later ones longer."""

    def __init__(self, good_for, later=0):
        self.good_for, self.later, self.given, self.used = good_for, later, 0, Counter()

    def __call__(self, handler, answer):
        if handler.path.startswith("/token"):
            self.given += 1
            body = json.dumps({"token": f"t{self.given}"}).encode()
            handler.pass_on(spoils.Answer(200, {}, body))
            return
        token = handler.headers.get("Authorization")
        self.used[token] += 1
        good_for = self.good_for if token == "Bearer t1" else self.later
        if token is not None and self.used[token] <= good_for:
            handler.pass_on(answer)
        else:
            self._ask(handler)

    def _ask(self, handler):
        realm = f'Bearer realm="http://{handler.headers["Host"]}/token",service="x",scope="y"'
        handler.pass_on(spoils.Answer(401, {"Www-Authenticate": realm}, b""))


def test_a_token_that_expires_in_the_middle_is_replaced(oci, source, target):
    (entry,) = source.entries()
    with oci.spoilt() as (url, proxy):
        push_all(source, url)
        proxy.spoil = Tokens(good_for=3, later=100)
        pull_one(target, url, entry)
        assert proxy.spoil.given > 1
    assert_intact(target.root, entry)


def test_tokens_that_are_never_taken_end_in_a_refusal(oci, source, target):
    (entry,) = source.entries()
    with oci.spoilt() as (url, proxy):
        push_all(source, url)
        proxy.asked.clear()
        proxy.spoil = Tokens(good_for=0)
        with pytest.raises(Denied):
            pull_one(target, url, entry)
        assert len(proxy.asked) < 12


@pytest.fixture(scope="module")
def locked(oci, tmp_path_factory):
    """A registry with a password."""
    with registry(tmp_path_factory.mktemp("locked"), password=HASHED) as host:
        yield host


def log_in(folder, host, password):
    pair = base64.b64encode(f"user:{password}".encode()).decode()
    (folder / ".docker").mkdir()
    (folder / ".docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": pair}}}))


def test_a_login_of_docker_is_used(locked, source, target, tmp_path, monkeypatch):
    (entry,) = source.entries()
    monkeypatch.setenv("HOME", str(tmp_path))
    log_in(tmp_path, locked, PASSWORD)
    push_all(source, f"oci://{locked}/a/b")
    pull_one(target, f"oci://{locked}/a/b", entry)
    assert_intact(target.root, entry)


def test_a_login_of_the_url_is_used_and_not_kept(locked, source, target):
    (entry,) = source.entries()
    url = f"oci://user:{PASSWORD}@{locked}/a/c"
    push_all(source, url)
    pull_one(target, url, entry)
    mark = (target.root / "v1" / "pulled" / entry.artifact).read_text()
    assert f"oci://{locked}/a/c" in mark
    assert PASSWORD not in mark


@pytest.mark.parametrize("password", ["", "wrong"])
def test_without_the_right_password_we_are_denied(locked, source, tmp_path, monkeypatch, password):
    monkeypatch.setenv("HOME", str(tmp_path))
    if password:
        log_in(tmp_path, locked, password)
    with pytest.raises(Denied) as caught:
        push_all(source, f"oci://{locked}/a/d")
    assert "docker login" in caught.value.hint or "Check the credentials" in caught.value.hint


def test_a_broken_config_of_docker_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(f'{{"auths": {PASSWORD}')
    with pytest.raises(UsageError, match="docker's config") as caught, at("oci://h.example/a"):
        pass
    assert PASSWORD not in str(caught.value.as_dict())


def test_plain_http_to_the_internet_is_refused():
    with pytest.raises(UsageError, match="open internet"), at("oci://ghcr.io/a/b?tls=off"):
        pass


def test_whole_artifacts_of_many_blobs_fit(oci, source, target):
    (entry,) = source.entries()
    url = oci.fresh()
    (done,) = push_all(source, url, limits=QUICK)
    assert done.blobs == len(BLOBS)
    assert push_all(source, url)[0].blobs == 0
    pull_one(target, url, entry)
    assert_intact(target.root, entry)
