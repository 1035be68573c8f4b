"""Reading blobs: a miss, damage and storage trouble are told apart (rows 21-32, 42, 87)."""

from __future__ import annotations

import errno
import os
import threading

import pytest
from support.stores import BLOBS, blob_path, child, exit_of, flipped, manifest_of, overwrite

from vcc.cache.blob import Damaged, read_blob, read_blobs
from vcc.cache.digest import Digest
from vcc.cache.errors import MissingArtifact, StorageError
from vcc.cache.root import opened
from vcc.cache.store import Store

DATA = BLOBS["piece/0.so"]
DIGEST = Digest.of(DATA)


@pytest.fixture
def root(tmp_path):
    Store.open(tmp_path / "store").publish(manifest_of(), BLOBS)
    return tmp_path / "store"


@pytest.fixture
def store(root):
    with opened(root, create=False) as folder:
        yield folder


def test_right_bytes_are_returned(store):
    assert read_blob(store, DIGEST, len(DATA)) == DATA
    assert read_blob(store, DIGEST, None) == DATA


def test_a_blob_that_is_not_there_is_a_miss(store):
    with pytest.raises(MissingArtifact):
        read_blob(store, Digest.of(b"never stored"), 3)


def test_another_size_than_promised_is_damage(store):
    with pytest.raises(Damaged, match=f"{len(DATA)} bytes, 5 expected") as caught:
        read_blob(store, DIGEST, 5)
    assert caught.value.digest == DIGEST


@pytest.mark.parametrize("kind", ["symlink", "folder", "fifo", "symlink to itself"])
def test_what_is_no_regular_file_is_damage_and_never_blocks(store, root, kind):
    path = blob_path(root, DIGEST)
    path.rename(path.with_name("aside"))
    {
        "symlink": lambda: path.symlink_to(path.with_name("aside")),
        "symlink to itself": lambda: path.symlink_to(path),
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
    }[kind]()
    with pytest.raises(Damaged):
        read_blob(store, DIGEST, None)


def test_a_symlinked_shelf_is_damage(store, root):
    shelf = blob_path(root, DIGEST).parent
    shelf.rename(shelf.with_name("zz"))
    shelf.symlink_to(shelf.with_name("zz"))
    with pytest.raises(Damaged):
        read_blob(store, DIGEST, None)


def failing(monkeypatch, code: int, times: int):
    """Let reading fail; `times` reads in a row."""
    real, left = os.read, [times]

    def read(fd, size):
        if left[0]:
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return real(fd, size)

    monkeypatch.setattr(os, "read", read)


def test_a_disk_that_cannot_read_is_damage(store, monkeypatch):
    failing(monkeypatch, errno.EIO, 1)
    with pytest.raises(Damaged, match="cannot be read"):
        read_blob(store, DIGEST, len(DATA))


def test_a_lost_handle_is_opened_again_once(store, monkeypatch):
    failing(monkeypatch, errno.ESTALE, 1)
    assert read_blob(store, DIGEST, len(DATA)) == DATA
    failing(monkeypatch, errno.ESTALE, 2)
    with pytest.raises(StorageError, match="cannot read"):
        read_blob(store, DIGEST, len(DATA))


def test_no_descriptors_left_is_storage_trouble_and_not_damage(store, monkeypatch):
    failing(monkeypatch, errno.EMFILE, 1)
    with pytest.raises(StorageError) as caught:
        read_blob(store, DIGEST, len(DATA))
    assert "ulimit -n" in caught.value.hint


def test_an_unreadable_blob_names_path_and_owner(open_tmp):
    def work():
        root = open_tmp / "store"
        Store.open(root).publish(manifest_of(), BLOBS)
        blob_path(root, DIGEST).chmod(0)
        with opened(root, create=False) as store, pytest.raises(StorageError) as caught:
            read_blob(store, DIGEST, len(DATA))
        assert str(blob_path(root, DIGEST)) in caught.value.what
        assert "owner" in caught.value.why

    assert exit_of(child(work, uid=65534)) == 0


def test_a_file_cut_after_it_was_read_changes_nothing(store, root):
    """Row 36: bytes are copied, never mapped."""
    data = read_blob(store, DIGEST, len(DATA))
    os.truncate(blob_path(root, DIGEST), 0)
    assert data == DATA


def test_several_blobs_are_read_in_threads_and_the_first_error_wins(store, root):
    names = [f"{n}" for n in range(20)]
    threads = set()

    def read(name: str) -> bytes:
        threads.add(threading.current_thread().name)
        return read_blob(store, DIGEST, len(DATA))

    assert read_blobs(read, names) == dict.fromkeys(names, DATA)
    assert all("vcc-verify" in name for name in threads)
    overwrite(blob_path(root, DIGEST), flipped(DATA, 100, 1))
    with pytest.raises(Damaged):
        read_blobs(read, names)


def test_few_bytes_are_read_without_threads(store, root):
    threads = set()

    def read(name: str) -> bytes:
        threads.add(threading.current_thread())
        return read_blob(store, DIGEST, len(DATA))

    names = ["0", "1"]
    assert read_blobs(read, names, 2 * len(DATA)) == dict.fromkeys(names, DATA)
    assert threads == {threading.main_thread()}
