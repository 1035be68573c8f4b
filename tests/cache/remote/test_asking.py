"""A miss asks the remote: within bounds, under the gate, and never the reason why a run fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from support import chaos_proxy as spoils
from support.remotes import QUICK, push_all, visible
from support.stores import BASE, BLOBS, assert_intact, child, exit_of, manifest_of

from vcc.cache.errors import RemoteError, UsageError
from vcc.cache.remote.asking import Asking
from vcc.cache.remote.source import source_of
from vcc.cache.settings import read_settings
from vcc.cache.store import Store
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.remotes import change_remotes


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Short limits for what a miss may take."""
    monkeypatch.setattr(Asking.__init__, "__defaults__", (QUICK,))


@pytest.fixture
def asking(tmp_path, monkeypatch):
    """A function: a store that asks a trusted remote at a URL, and what it was told."""
    monkeypatch.setenv("VCC_TRUST_DIR", str(tmp_path / "trust"))

    def store(url, *, trusted=True, **named):
        told = []
        settings = replace(read_settings(), remote=url, trust_dir=tmp_path / "trust", **named)
        if trusted:
            shown = source_of(settings, None).url
            change_remotes(TrustPlace.open(tmp_path / "trust"), shown, trusted=True)
        opened = Store.open(tmp_path / "target", settings=settings)
        remote = None if opened.remote is None else opened.remote.telling(told.append)
        return replace(opened, remote=remote, on_trouble=lambda e: told.append(str(e))), told

    return store


def test_a_miss_pulls_the_newest_that_is_usable(kind, source, asking):
    newer = source.publish(manifest_of(created=1_800_000_000), BLOBS)
    older = next(entry for entry in source.entries() if entry != newer)
    url = kind.fresh()
    push_all(source, url)
    store, told = asking(url)
    assert store.find(BASE, {"mode": "full"}) == (newer,)
    assert_intact(store.root, newer)
    assert "trusted remote" in store.load(newer).trust
    assert any("pulled from" in line for line in told)
    assert visible(store) == [newer.artifact]
    assert store.find(BASE, accept=lambda entry: entry == older) == (older,)


def test_a_hit_asks_nobody(source, asking):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        nobody.setblocking(False)
        url = f"oci://127.0.0.1:{nobody.getsockname()[1]}/a/b"
        store, told = asking(url)
        store.publish(manifest_of(), BLOBS)
        assert store.find(BASE)
        with pytest.raises(BlockingIOError):
            nobody.accept()
    assert told == []


def test_what_does_not_answer_is_not_pulled(kind, source, asking):
    url = kind.fresh()
    push_all(source, url)
    store, _ = asking(url)
    assert store.find(BASE, {"mode": "none"}) == ()
    assert store.find(BASE, accept=lambda entry: False) == ()
    assert visible(store) == []


def test_a_remote_that_is_not_trusted_is_told_and_passed_over(kind, source, asking):
    url = kind.fresh()
    push_all(source, url)
    store, told = asking(url, trusted=False)
    assert store.find(BASE) == ()
    assert any("not a trusted remote" in line for line in told)
    assert visible(store) == []


def test_a_bad_artifact_is_passed_over_for_an_older_one(source, asking, tmp_path):
    newer = source.publish(manifest_of(created=1_800_000_000), {**BLOBS, "program": b"newer"})
    older = next(entry for entry in source.entries() if entry != newer)
    url = f"file://{tmp_path}/r"
    push_all(source, url)
    bad = next(
        p for p in (tmp_path / "r/v1/cas").rglob("*") if p.is_file() and p.read_bytes() == b"newer"
    )
    bad.write_bytes(b"spoil")
    store, told = asking(url)
    assert store.find(BASE) == (older,)
    assert any("not what its digest says" in line for line in told)


FAILURES = {
    "503": spoils.status(503),
    "403": spoils.status(403),
    "an hour": spoils.status(503, Retry_After="3600"),
    "reset": spoils.reset_at(0),
    "elsewhere": spoils.status(302, Location="http://169.254.169.254/"),
    "404": spoils.status(404),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_remote_that_fails_costs_a_miss_and_nothing_else(networked, source, asking, name):
    with networked.spoilt() as (url, proxy):
        push_all(source, url)
        store, told = asking(url)
        proxy.spoil = FAILURES[name]
        begun = time.monotonic()
        assert store.find(BASE) == ()
        assert time.monotonic() - begun < 10
    assert name == "404" or told


@pytest.mark.parametrize("name", ["503", "403"])
def test_the_same_failure_is_an_error_where_the_store_is_strict(networked, source, asking, name):
    with networked.spoilt() as (url, proxy):
        push_all(source, url)
        store, _ = asking(url, strict=True)
        proxy.spoil = FAILURES[name]
        with pytest.raises(RemoteError):
            store.find(BASE)


def test_a_blob_that_is_gone_is_a_miss_that_is_told(source, asking, tmp_path):
    url = f"file://{tmp_path}/r"
    push_all(source, url)
    next(
        p for p in (tmp_path / "r/v1/cas").rglob("*") if p.is_file() and p.stat().st_size == 1024
    ).unlink()
    store, told = asking(url)
    assert store.find(BASE) == ()
    assert any("does not have it" in line for line in told)


@pytest.mark.parametrize(
    "place", ["does-not-exist.invalid", "127.0.0.1:1", "[::1]:1"], ids=["DNS", "refused", "IPv6"]
)
def test_a_remote_that_is_not_there_costs_little_time(s3, oci, asking, place):
    for url in (f"oci://{place}/a/b?tls=off", f"s3://b/x?endpoint=http://{place}"):
        if "invalid" in place:
            url = url.replace("?tls=off", "")
        store, told = asking(url)
        begun = time.monotonic()
        assert store.find(BASE) == ()
        assert time.monotonic() - begun < 15
        assert told


def test_offline_nobody_is_asked(s3, asking):
    store, told = asking(s3.fresh(), trusted=False, offline=True)
    assert store.remote is None
    assert store.find(BASE) == ()
    assert told == []


def test_without_a_network_a_miss_is_at_once(tmp_path):
    """`unshare -n`: no interface at all. The client must not hang."""
    urls = ["oci://192.0.2.1:5000/a/b?tls=off", "s3://b/x?endpoint=http://192.0.2.1:9000"]
    urls += ["oci://registry.example/a/b"]
    started = look_up(tmp_path / "s", urls, before=("unshare", "-n"))
    out, error = started.communicate(timeout=60)
    if "unshare failed" in error or "Operation not permitted" in error:
        pytest.skip("needs the right to make a network namespace")
    answers = [line.split() for line in out.splitlines()]
    assert len(answers) == 3, error
    assert all(found == "0" and float(seconds) < 10 for found, seconds in answers)


def test_a_url_that_is_none_is_said_when_the_store_is_opened(tmp_path):
    with pytest.raises(UsageError):
        Store.open(tmp_path, settings=replace(read_settings(), remote="canary"))


LOOK_UP = """
import sys, time, pathlib
from dataclasses import replace
from support.stores import BASE
from vcc.cache.settings import read_settings
from vcc.cache.store import Store
if "broken" in sys.argv:
    import fcntl
    def no_lock(*args):
        raise OSError(38, "no locks here")
    fcntl.flock = fcntl.lockf = no_lock
for url in sys.argv[2].split():
    settings = replace(read_settings(), remote=url)
    store = Store.open(pathlib.Path(sys.argv[1]), settings=settings)
    begun = time.monotonic()
    print(len(store.find(BASE)), time.monotonic() - begun)
"""


def look_up(root, urls, *words, before=()):
    """A process that looks up the test model, with that many urls in turn."""
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    return subprocess.Popen(
        [*before, sys.executable, "-c", LOOK_UP, str(root), " ".join(urls), *words],
        env={**os.environ, **keys, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_one_process_pulls_and_the_others_wait_for_it(s3, source, asking):
    with s3.spoilt() as (url, proxy):
        push_all(source, url)
        proxy.asked.clear()
        store, _ = asking(url)
        started = [look_up(store.root, [url]) for _ in range(3)]
        assert [one.communicate(timeout=60)[0].split()[0] for one in started] == ["1"] * 3
        asked = [one.path.partition("?")[0] for one in proxy.asked if one.method == "GET"]
    blobs = [path for path in asked if "/cas/" in path]
    assert len(blobs) == len(set(blobs)) == len(BLOBS) + 1


def test_with_locks_that_fail_every_process_still_has_it(s3, source, asking):
    url = s3.fresh()
    push_all(source, url)
    store, _ = asking(url)
    started = [look_up(store.root, [url], "broken") for _ in range(3)]
    assert [one.communicate(timeout=60)[0].split()[0] for one in started] == ["1"] * 3
    assert_intact(store.root, next(source.entries()))


def test_a_forked_child_is_told_that_its_client_is_gone_and_goes_on(s3, source, asking):
    """The client's threads are not in the child: it would wait for them for good."""
    url = s3.fresh()
    push_all(source, url)
    store, told = asking(url)

    def work():
        assert store.find(BASE) == ()
        assert any("forked" in line for line in told)

    begun = time.monotonic()
    assert exit_of(child(work)) == 0
    assert time.monotonic() - begun < 10


def test_a_hit_imports_none_of_the_clients(source, tmp_path):
    program = (
        "import sys, pathlib\n"
        "from support.stores import BASE\n"
        "from vcc.cache.store import Store\n"
        "store = Store.open(pathlib.Path(sys.argv[1]))\n"
        "(entry,) = store.find(BASE)\n"
        "store.load(entry).read_all()\n"
        "heavy = {'obstore', 'oras', 'requests', 'urllib3', 'cryptography', 'sqlite3', 'tomllib',\n"
        "         'concurrent.futures', 'http.client', 'vcc.cache.remote.pull'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    env = {**os.environ, "VCC_REMOTE": "s3://b/x", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(source.root)],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
