"""What a remote offers: bounded, and nothing bad gets through."""

from __future__ import annotations

import http.server
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from support.remotes import QUICK, Kind, at, push_all
from support.servers import serving
from support.stores import BASE, BLOBS, manifest_of

from vcc.cache.errors import RemoteError
from vcc.cache.remote.offers import offered, offers
from vcc.cache.remote.patience import Limits, Patience

PATIENCE = Limits(total_s=60)


def found(url, base=""):
    with at(url) as remote:
        return offers(remote, Patience(QUICK), base)


def ref_path(entry):
    return f"v1/refs/{entry.base.digest}/{entry.artifact}"


def test_refs_come_newest_first(kind, source):
    newer = source.publish(manifest_of("none", created=1_800_000_000), BLOBS)
    url = kind.fresh()
    push_all(source, url)
    assert found(url).entries[0] == newer
    assert len(found(url).entries) == 2


def test_one_base_is_asked_for_by_itself(kind, source):
    (entry,) = source.entries()
    url = kind.fresh()
    push_all(source, url)
    assert found(url, BASE.digest.hex).entries == (entry,)
    assert found(url, "0" * 64).entries == ()


def test_one_artifact_is_found_by_its_id(kind, source):
    (entry,) = source.entries()
    url = kind.fresh()
    push_all(source, url)
    with at(url) as remote:
        assert offered(remote, Patience(QUICK), entry.artifact) == (entry,)
        assert offered(remote, Patience(QUICK), "0" * 64) == ()


def test_an_empty_remote_offers_nothing(kind):
    assert found(kind.fresh()).entries == ()


@pytest.mark.parametrize("spoil", ["a byte", "empty", "other base", "huge"])
def test_a_bad_ref_is_told_and_hides_no_other(kind, source, spoil):
    good = source.publish(manifest_of("none"), BLOBS)
    bad = next(entry for entry in source.entries() if entry != good)
    url = kind.fresh()
    push_all(source, url)
    data = (source.root / ref_path(bad)).read_bytes()
    with at(url) as remote:
        path = ref_path(bad) if spoil != "other base" else f"v1/refs/{'0' * 64}/{bad.artifact}"
        bytes_of = {"a byte": data.replace(b"demo", b"dame"), "empty": b"", "huge": bytes(2 << 20)}
        remote.put(path, bytes_of.get(spoil, data), replace=True)
    if spoil == "huge":  # more than a ref may be is no longer read: the remote misbehaves
        with pytest.raises(RemoteError, match="too long"):
            found(url)
        return
    told = found(url)
    assert good in told.entries
    assert len(told.bad) == 1
    assert bad.artifact[:12] in told.bad[0]


@pytest.mark.parametrize("kind", ["file", "s3"], indirect=True)
def test_names_that_are_no_refs_are_passed_over(kind, source):
    """A repository has no other names."""
    (entry,) = source.entries()
    url = kind.fresh()
    push_all(source, url)
    with at(url) as remote:
        for name in ("README", f"{entry.base.digest}/README", f"{entry.base.digest.hex.upper()}/x"):
            remote.put(f"v1/refs/{name}", b"x")
    assert found(url) == type(found(url))((entry,), ())


class Bucket(http.server.BaseHTTPRequestHandler):
    """A bucket of any number of refs, none of which is there to be read."""

    names = 100_000
    pages = 0

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        start = int(query.get("continuation-token", ["0"])[0])
        end = min(start + 1000, self.names)
        type(self).pages += 1
        entry = "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        entry += "<ETag>x</ETag><Size>1</Size></Contents>"
        prefix = query["prefix"][0]
        keys = "".join(entry.format(self.key(prefix, number)) for number in range(start, end))
        more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < self.names else ""
        body = f"<ListBucketResult>{keys}{more}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def key(self, prefix, number):
        return f"{prefix}{number}"

    def log_message(self, *args):
        pass


class Refs(Bucket):
    """Refs by their form."""

    def key(self, prefix, number):
        return f"{prefix}{'0' * 64}/{number:064x}"


def listing(kind):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (kind,), {}))
    return server, f"s3://cache/x?endpoint=http://127.0.0.1:{server.server_port}"


@pytest.mark.usefixtures("s3")
def test_a_hundred_thousand_names_are_listed_page_by_page():
    server, url = listing(Bucket)
    with serving(server), at(url) as remote:
        assert offers(remote, Patience(PATIENCE)).entries == ()
        assert server.RequestHandlerClass.pages == 100


@pytest.mark.usefixtures("s3")
def test_a_listing_over_the_cap_is_refused(monkeypatch):
    monkeypatch.setattr("vcc.cache.remote.offers.MAX_NAMES", 5000)
    server, url = listing(Bucket)
    with serving(server), at(url) as remote:
        with pytest.raises(RemoteError, match="lists too much"):
            offers(remote, Patience(PATIENCE))
        assert server.RequestHandlerClass.pages < 10


@pytest.mark.usefixtures("s3")
def test_more_refs_than_are_read_at_once_are_refused_by_name(monkeypatch):
    monkeypatch.setattr(Bucket, "names", 3000)
    server, url = listing(Refs)
    with serving(server), at(url) as remote:
        with pytest.raises(RemoteError, match="offers 3000 artifacts") as caught:
            offers(remote, Patience(PATIENCE))
        assert re.search("whole ids", caught.value.hint)


def test_a_store_that_folds_case_still_tells_its_refs_apart(source, tmp_path):
    """All names are lower case already; one in capitals is no name of ours."""
    url = Kind("file", "", lambda at: f"file://{tmp_path}/r").fresh()
    push_all(source, url)
    names = [str(one.relative_to(tmp_path / "r")) for one in (tmp_path / "r").rglob("*")]
    assert names == [name.lower() for name in names]
    assert len({name.lower() for name in names}) == len(names)
