"""Proxies of the environment are used, and hosts that they leave out are not asked of them."""

from __future__ import annotations

import http.server

import pytest
from support.remotes import QUICK, at
from support.servers import serving

from vcc.cache.errors import RemoteError
from vcc.cache.remote.offers import offers
from vcc.cache.remote.patience import Patience

EMPTY = {"/v2/": b'{"tags":[]}', "list-type": b"<ListBucketResult></ListBucketResult>"}


class Proxy(http.server.BaseHTTPRequestHandler):
    """A proxy that answers for all hosts: an empty listing, or a body of its own."""

    def do_GET(self):
        self.seen.append(self.path)
        body = next((text for mark, text in EMPTY.items() if mark in self.path), b"by proxy")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def proxy(monkeypatch):
    """What a proxy of the environment was asked."""
    kind = type("Bound", (Proxy,), {"seen": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    with serving(server):
        yield kind.seen


URLS = {
    "oci": "oci://registry.internal/a/b?tls=off",
    "s3": "s3://bucket/x?endpoint=http://storage.internal",
}


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("name", URLS)
def test_listings_go_through_the_proxy(proxy, name):
    with at(URLS[name]) as remote:
        assert offers(remote, Patience(QUICK)).entries == ()
    assert proxy[0].startswith(("http://registry.internal/v2/", "http://storage.internal/bucket"))


@pytest.mark.usefixtures("s3")
def test_reads_go_through_the_proxy(proxy):
    parts = []
    with at(URLS["s3"]) as remote:
        remote.get("v1/refs/a/b", parts.append, limit=100)
    assert b"".join(parts) == b"by proxy"
    assert proxy[0].startswith("http://storage.internal/bucket/x/v1/refs/a/b?")


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("name", URLS)
def test_hosts_that_need_no_proxy_are_asked_directly(proxy, monkeypatch, name):
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(variable, ".internal")
    with at(URLS[name]) as remote, pytest.raises(RemoteError):
        offers(remote, Patience(QUICK))
    assert proxy == []


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("name", URLS)
def test_a_proxy_that_is_not_there_is_an_error(monkeypatch, name):
    for variable in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    with at(URLS[name]) as remote, pytest.raises(RemoteError):
        offers(remote, Patience(QUICK))
