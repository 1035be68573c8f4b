"""Publishing against crashes and storage errors: complete or invisible, earlier entries intact.

Each call fails with an error of the disk in turn. That the kernel ends the process at each system
call is in `faults/test_kill_matrix.py`.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from support.stores import (
    BASE,
    BLOBS,
    assert_intact,
    blob_path,
    child,
    exit_of,
    manifest_of,
    ref_path,
)

from vcc.cache.errors import StorageError
from vcc.cache.store import Store

CALLS = ("mkdir", "open", "write", "fsync", "fchmod", "link", "rename", "unlink", "rmdir")
NEW = {"program": b"new program", "constant/inv_freq": bytes(100), "piece/0.so": b"\x7fELFnew"}


class Stop:
    """Replace the calls of `os` so that the n-th one does something else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, act) -> None:
        self.count, self.at, self.act = 0, at, act
        self.names: list[str] = []
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name, real):
        def call(*args, **options):
            self.count += 1
            self.names.append(name)
            if self.count == self.at:
                self.act(name)
            return real(*args, **options)

        return call


def earlier(root: Path):
    return Store.open(root).publish(manifest_of("none", created=1), BLOBS)


def number_of_calls(root: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        stop = Stop(patch, -1, None)
        Store.open(root).publish(manifest_of(), NEW)
    assert set(stop.names) >= {"mkdir", "open", "write", "fsync", "link", "unlink", "rmdir"}
    return stop.count


def assert_all_or_nothing(root: Path, old) -> None:
    """Old entry intact; the new one complete or invisible; publishing again works."""
    assert_intact(root, old)
    for entry in Store.open(root).find(BASE, {"mode": "full"}):
        assert_intact(root, entry, NEW)
    assert_intact(root, Store.open(root).publish(manifest_of(), NEW), NEW)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_call_is_a_storage_error_and_the_store_is_whole(fast_tmp, code):
    total = number_of_calls_on_a_copy(fast_tmp)
    outcomes: Counter[str] = Counter()
    for at in range(1, total + 1):
        root = fast_tmp / f"fail{at}"
        old = copy_of_earlier(fast_tmp, root)
        outcomes[publish_with_failure(root, at, code)] += 1
        assert_all_or_nothing(root, old)
        shutil.rmtree(root)
    assert set(outcomes) == {"StorageError True", "published"}
    assert outcomes["StorageError True"] > 20
    assert outcomes["published"] > 0  # what fails in clean-up is logged, not raised


def publish_with_failure(root: Path, at: int, code: int) -> str:
    def fail(name: str) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        Stop(patch, at, fail)
        try:
            Store.open(root).publish(manifest_of(), NEW)
        except StorageError as error:
            return f"StorageError {error.why == os.strerror(code) and bool(error.hint)}"
    return "published"


def copy_of_earlier(fast_tmp: Path, root: Path):
    template = fast_tmp / "template"
    if not template.exists():
        earlier(template)
    shutil.copytree(template, root)
    (old,) = Store.open(root).find(BASE, {"mode": "none"})
    return old


def number_of_calls_on_a_copy(fast_tmp: Path) -> int:
    copy_of_earlier(fast_tmp, fast_tmp / "count")
    return number_of_calls(fast_tmp / "count")


# Details


def test_nothing_is_left_in_tmp(tmp_path):
    earlier(tmp_path / "store")
    assert list((tmp_path / "store/v1/tmp").iterdir()) == []


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:7]))
    entry = earlier(tmp_path / "store")
    assert_intact(tmp_path / "store", entry)


def test_a_write_without_progress_is_an_error_and_not_a_loop(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(StorageError, match="no progress"):
        earlier(tmp_path / "store")


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_a_file_system_without_hard_links_works(tmp_path, monkeypatch, code):
    def refuse(*args, **options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    entry = earlier(tmp_path / "store")
    assert earlier(tmp_path / "store") == entry
    assert_intact(tmp_path / "store", entry)


@pytest.mark.parametrize("kind", ["folder", "symlink", "fifo"])
def test_what_is_no_file_in_the_place_of_a_blob_is_replaced(tmp_path, kind):
    root = tmp_path / "store"
    entry = earlier(root)
    path = blob_path(root, entry.artifact)
    path.unlink()
    {"folder": path.mkdir, "symlink": lambda: path.symlink_to("/etc/passwd")}.get(
        kind, lambda: os.mkfifo(path)
    )()
    assert earlier(root) == entry
    assert_intact(root, entry)


def test_a_damaged_ref_is_replaced(tmp_path):
    root = tmp_path / "store"
    entry = earlier(root)
    ref_path(root, entry).write_bytes(b"junk")
    assert earlier(root) == entry
    assert_intact(root, entry)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_modes_are_private_whatever_the_umask(open_tmp, umask):
    root = open_tmp / "made/on/the/way/store"
    assert exit_of(child(lambda: earlier(root), uid=65534, umask=umask)) == 0
    modes = Counter(
        (path.is_dir(), path.stat().st_mode & 0o777)
        for path in [root.parent, root, *root.rglob("*")]
    )
    assert set(modes) == {(True, 0o700), (False, 0o600)}


def test_the_ref_is_linked_only_when_all_it_needs_would_survive_a_power_loss(tmp_path, monkeypatch):
    """Row 13 as an order of calls: a name counts as durable once file and folder were synced."""
    synced: set[str] = set()
    linked: list[tuple[str, bool]] = []
    lost_at_ref: list[str] = []
    real_sync, real_link = os.fsync, os.link

    def place(fd):
        return os.readlink(f"/proc/self/fd/{fd}")

    def fsync(fd):
        synced.add(place(fd))
        return real_sync(fd)

    def link(source, name, *, src_dir_fd, dst_dir_fd, **options):
        folder = place(dst_dir_fd)
        synced.discard(folder)
        if "/refs/" in folder:
            lost_at_ref.extend(path for path, durable in linked if not durable)
            lost_at_ref.extend(str(Path(path).parent) for path, _ in linked if not whole(path))
        linked.append((f"{folder}/{name}", f"{place(src_dir_fd)}/{source}" in synced))
        return real_link(source, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **options)

    def whole(path: str) -> bool:
        above = [str(f) for f in Path(path).parents if f == tmp_path or tmp_path in f.parents]
        return set(above) <= synced

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    earlier(tmp_path / "store")
    assert lost_at_ref == []
    assert "/refs/" in linked[-1][0]
    assert len(linked) == len(BLOBS) + 2
    assert linked[-1][1]
    assert whole(linked[-1][0])
