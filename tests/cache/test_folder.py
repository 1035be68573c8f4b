"""Open folders: names are opened below descriptors, and only regular files of ours are read."""

from __future__ import annotations

import errno
import os

import pytest

from vcc.cache.folder import FOLDER_FLAGS, Folder, WrongSize, write_all
from vcc.cache.trouble import Foreign, Unsafe


@pytest.fixture
def folder(tmp_path):
    fd = os.open(tmp_path, FOLDER_FLAGS)
    yield Folder(fd, str(tmp_path))
    os.close(fd)


def test_what_is_written_is_read(folder):
    folder.write("a", b"bytes")
    assert folder.read("a", size=5, limit=10) == b"bytes"
    assert folder.read("a", limit=5) == b"bytes"
    assert folder.names() == ["a"]
    folder.clear()
    assert folder.names() == []


def test_an_existing_file_is_never_written_over(folder):
    folder.write("a", b"1")
    with pytest.raises(FileExistsError):
        folder.write("a", b"2")
    assert folder.read("a", limit=5) == b"1"


@pytest.mark.parametrize(("size", "limit"), [(4, 10), (6, 10), (5, 4), (None, 4)])
def test_a_wrong_size_is_refused_before_a_byte_is_read(folder, size, limit):
    folder.write("a", b"bytes")
    with pytest.raises(WrongSize):
        folder.read("a", size=size, limit=limit)


def test_a_file_that_shrinks_while_it_is_read_is_a_wrong_size(folder, monkeypatch):
    folder.write("a", b"bytes")
    monkeypatch.setattr(os, "read", lambda fd, size: b"")
    with pytest.raises(WrongSize):
        folder.read("a", size=5, limit=10)


def test_short_reads_are_continued(folder, monkeypatch):
    folder.write("a", b"bytes" * 100)
    real = os.read
    monkeypatch.setattr(os, "read", lambda fd, size: real(fd, min(size, 7)))
    assert folder.read("a", size=500, limit=500) == b"bytes" * 100


def test_symlinks_folders_and_fifos_are_not_files(folder, tmp_path):
    folder.write("a", b"bytes")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as caught:  # noqa: PT011
        folder.read("link", limit=10)
    assert caught.value.errno == errno.ELOOP
    for name in ("fifo", "folder"):
        with pytest.raises(Unsafe, match="regular"):
            folder.read(name, limit=10)


def test_a_file_that_everyone_may_change_is_refused(folder, tmp_path):
    folder.write("a", b"bytes")
    (tmp_path / "a").chmod(0o602)
    with pytest.raises(Unsafe, match="every account"):
        folder.read("a", limit=10)


@pytest.mark.root
def test_a_file_of_another_account_is_refused(folder, tmp_path, as_root):
    folder.write("a", b"bytes")
    os.chown(tmp_path / "a", 65534, 65534)
    with pytest.raises(Foreign):
        folder.read("a", limit=10)


def test_folders_below_are_made_private_and_left_alone_when_there(folder, tmp_path):
    (tmp_path / "x").mkdir(mode=0o755)
    with folder.below("x", "y", create=True) as inner:
        assert inner.names() == []
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "x/y").stat().st_mode & 0o777 == 0o700


def test_no_descriptor_is_left_open(folder, tmp_path):
    def count():
        return len(os.listdir("/proc/self/fd"))

    before = count()
    folder.write("a", b"bytes")
    folder.read("a", limit=10)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad").chmod(0o777)
    for names in (("none",), ("a",), ("bad",)):
        with pytest.raises((OSError, Unsafe)), folder.below(*names):
            pass
    with folder.below("b", create=True):
        pass
    assert count() == before


def test_write_all_takes_any_buffer(tmp_path):
    fd = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    write_all(fd, memoryview(bytearray(b"12345678")).cast("I"))
    os.close(fd)
    assert (tmp_path / "a").read_bytes() == b"12345678"
