"""A remote in a directory: shared with others, and trusted as little as a server."""

from __future__ import annotations

import errno
import os

import pytest
from support.remotes import at, push_all

from vcc.cache.errors import RemoteError
from vcc.cache.publish import NO_LINKS
from vcc.cache.remote.base import Absent, Denied
from vcc.cache.remote.open import open_remote


@pytest.fixture
def remote(tmp_path):
    (tmp_path / "remote").mkdir()
    return open_remote(f"file://{tmp_path}/remote")


def body(remote, path, limit=1000, start=0):
    parts = []
    remote.get(path, parts.append, limit=limit, start=start)
    return b"".join(parts)


def test_what_is_put_is_there_once(remote):
    assert remote.put("v1/a/b", b"one")
    assert not remote.put("v1/a/b", b"two")
    assert body(remote, "v1/a/b") == b"one"
    assert remote.put("v1/a/b", b"three", replace=True)
    assert body(remote, "v1/a/b", start=2) == b"ree"
    assert remote.size("v1/a/b") == 5
    assert list(remote.paths("v1/")) == ["v1/a/b"]


def test_what_is_not_there_is_absent(remote):
    assert remote.size("v1/a") is None
    assert list(remote.paths("v1/refs/")) == []
    with pytest.raises(Absent):
        body(remote, "v1/a")


@pytest.mark.parametrize("plant", ["symlink", "folder", "fifo", "symlink above"])
def test_what_is_no_regular_file_is_refused(remote, tmp_path, plant):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "b").write_bytes(b"secret")
    place = tmp_path / "remote" / "v1" / "a"
    place.mkdir(parents=True)
    made = {
        "symlink": lambda: (place / "b").symlink_to(secret / "b"),
        "folder": lambda: (place / "b").mkdir(),
        "fifo": lambda: os.mkfifo(place / "b"),
        "symlink above": lambda: (place.rmdir(), place.symlink_to(secret)),
    }
    made[plant]()
    with pytest.raises((RemoteError, Absent)):
        body(remote, "v1/a/b")


def test_a_share_that_is_not_mounted_is_no_empty_remote(tmp_path):
    remote = open_remote(f"file://{tmp_path}/mnt/share")
    assert remote.size("v1/a") is None
    for ask in (lambda: list(remote.paths("v1/")), lambda: body(remote, "v1/a")):
        with pytest.raises(RemoteError, match="is not there"):
            ask()
    with pytest.raises(RemoteError, match="is not there"):
        remote.put("v1/a", b"x")
    assert not (tmp_path / "mnt").exists()


def test_the_folder_of_a_remote_is_made_by_the_first_put(tmp_path):
    remote = open_remote(f"file://{tmp_path}/new")
    assert remote.put("v1/a", b"x")
    assert body(remote, "v1/a") == b"x"


def test_a_file_over_the_limit_is_refused(remote):
    remote.put("v1/a", bytes(100))
    with pytest.raises(RemoteError, match="too long"):
        body(remote, "v1/a", limit=99)


def test_without_links_a_put_renames_and_does_not_replace(remote, monkeypatch):
    def no_links(*args, **named):
        raise OSError(errno.EPERM, "no links")

    assert errno.EPERM in NO_LINKS
    monkeypatch.setattr(os, "link", no_links)
    assert remote.put("v1/a/b", b"one")
    assert not remote.put("v1/a/b", b"two")
    assert body(remote, "v1/a/b") == b"one"
    assert [one.name for one in (_root(remote) / "v1" / "a").iterdir()] == ["b"]


def test_a_failed_put_leaves_no_file(remote, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr("vcc.cache.remote.file.write_all", full)
    with pytest.raises(RemoteError, match="no space"):
        remote.put("v1/a/b", b"one")
    assert [one for one in _root(remote).rglob("*") if one.is_file()] == []


def test_a_root_that_another_thread_has_just_made_is_taken(remote, monkeypatch):
    _root(remote).parent.mkdir(exist_ok=True)
    real = os.path.isdir
    monkeypatch.setattr(
        os.path, "isdir", lambda path: False if str(path) == str(_root(remote)) else real(path)
    )
    assert remote.put("v1/a", b"one")
    assert remote.put("v1/b", b"two")


def test_others_may_read_a_share_as_the_umask_says(tmp_path, source):
    before = os.umask(0o022)
    try:
        push_all(source, f"file://{tmp_path}/share")
    finally:
        os.umask(before)
    modes = {one.stat().st_mode & 0o777 for one in (tmp_path / "share").rglob("*")}
    assert modes == {0o755, 0o644}


def test_a_place_that_cannot_be_written_is_denied(remote, monkeypatch):
    def denied(*args, **named):
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(os, "mkdir", denied)
    with pytest.raises(Denied, match="read-only"):
        remote.put("v1/a", b"")


def test_offline_does_not_concern_directories(tmp_path, monkeypatch):
    monkeypatch.setenv("VCC_OFFLINE", "1")
    with at(f"file://{tmp_path}") as remote:
        assert list(remote.paths("v1/")) == []


def _root(remote):
    from pathlib import Path

    return Path(remote.place.path)
