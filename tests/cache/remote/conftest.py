"""Remotes for the tests: a directory, S3 by moto and OCI by docker-registry, all real.

RELIABILITY rows of group H and where they are tested, below this folder:

    121 wrong bytes, wrong digest header, login page   test_chaos.py, test_registry.py
    122 truncated bodies                               test_chaos.py
    124 redirects                                      test_chaos.py, test_http.py, test_guard.py
    125 401, 403, expired token                        test_chaos.py, test_registry.py
    126 blob gone, ref there                           test_pull.py, test_asking.py
    127 429, 503, Retry-After, bursts, DNS, RST        test_chaos.py, test_asking.py
    128 TLS                                            test_tls.py
    129 disk full in pull                              test_disk_full.py
    131 two pullers of one blob                        test_pull.py
    132 If-None-Match, stores without it               test_bucket.py, test_push.py
    134 ref of another key                             test_pull.py
    135 100,000 names, case-folding stores             test_offers.py
    136 proxies, IPv6, no network                      test_network.py, test_asking.py
    137 credentials                                    test_secrets.py
    138 an artifact of a pull request                  tests/cache/trust/test_policy_prod.py
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.remotes import NUMBER, Kind
from support.servers import AWS, registry, s3_server
from support.stores import BLOBS, manifest_of

from vcc.cache.store import Store


@contextmanager
def in_memory(otherwise):
    """A folder in memory where that can be, as stores sync every file; else the one given."""
    if not os.access("/dev/shm", os.W_OK):
        yield otherwise()
        return
    folder = Path(tempfile.mkdtemp(prefix="vcc-test-", dir="/dev/shm"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def tmp_path(tmp_path):
    """Of every test here."""
    with in_memory(lambda: tmp_path) as folder:
        yield folder


@pytest.fixture(scope="session")
def s3_at(tmp_path_factory):
    """The URL of an S3 with a bucket `cache`."""
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as url:
        yield url


@pytest.fixture
def s3(s3_at, monkeypatch):
    """S3 with a bucket `cache`, and what is asked for there in the environment."""
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    return Kind("s3", s3_at, lambda at: f"s3://cache/{next(NUMBER)}/x?endpoint={at}")


@pytest.fixture(scope="session")
def oci(tmp_path_factory):
    """A registry that everyone may push to."""
    try:
        with (
            in_memory(lambda: tmp_path_factory.mktemp("registry")) as folder,
            registry(folder) as host,
        ):
            yield Kind(
                "oci",
                f"http://{host}",
                lambda at: f"oci://{at.removeprefix('http://')}/team/c{next(NUMBER)}",
            )
    except LookupError as error:
        pytest.skip(str(error))


def made(folder):
    """The URL of a folder that is made."""
    folder.mkdir()
    return f"file://{folder}"


@pytest.fixture(params=["file", "s3", "oci"])
def kind(request, tmp_path):
    """Each kind of remote."""
    if request.param == "file":
        return Kind("file", "", lambda at: made(tmp_path / f"remote{next(NUMBER)}"))
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["s3", "oci"])
def networked(request):
    """Each kind of remote that is reached by a network."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def source(tmp_path):
    """A store with one artifact."""
    store = Store.open(tmp_path / "source")
    store.publish(manifest_of(), BLOBS)
    return store


@pytest.fixture
def target(tmp_path):
    """A store that is not there yet."""
    return Store.open(tmp_path / "target")
