"""Reading refs: damage, what is not ours, and what the system refuses are told apart."""

from __future__ import annotations

import errno
import os

import pytest
from support.stores import BASE, BLOBS, manifest_of, overwrite, quiet, ref_path

from vcc.cache.errors import StorageError
from vcc.cache.refs import bases, check_same, read_refs
from vcc.cache.root import opened

BASE_HEX = BASE.digest.hex


@pytest.fixture
def entry(root):
    return quiet(root).publish(manifest_of(), BLOBS)


@pytest.fixture
def v1(root, entry):
    with opened(root, create=False) as folder:
        yield folder


def test_good_refs_are_read_newest_first(root, entry, v1):
    newer = quiet(root).publish(manifest_of(created=entry.created + 1), BLOBS)
    assert read_refs(v1, BASE_HEX).entries == (newer, entry)
    assert bases(v1) == (BASE_HEX,)


def test_no_folder_is_no_entry(v1):
    assert read_refs(v1, "c" * 64).entries == ()


def test_skipped_refs_are_not_even_opened(root, entry, v1):
    overwrite(ref_path(root, entry), b"junk")
    assert read_refs(v1, BASE_HEX, {entry.artifact}).bad == ()
    assert [name for name, _ in read_refs(v1, BASE_HEX).bad] == [entry.artifact]


@pytest.mark.parametrize("size", [0, 65, 66, 67, 1 << 21])
def test_a_ref_of_any_wrong_size_is_bad(root, entry, v1, size):
    overwrite(ref_path(root, entry), bytes(size))
    assert [name for name, _ in read_refs(v1, BASE_HEX).bad] == [entry.artifact]


@pytest.mark.parametrize("kind", ["symlink", "folder", "fifo"])
def test_a_ref_that_is_no_file_is_bad(root, entry, v1, kind):
    path = ref_path(root, entry)
    aside = path.with_name("aside")
    path.rename(aside)
    {
        "symlink": lambda: path.symlink_to(aside),
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
    }[kind]()
    assert [name for name, _ in read_refs(v1, BASE_HEX).bad] == [entry.artifact]


@pytest.mark.root
def test_a_ref_of_another_account_is_neither_used_nor_touched(root, entry, as_root):
    os.chown(ref_path(root, entry), 65534, 65534)
    damages: list[object] = []
    store = type(quiet(root)).open(root, on_damage=damages.append)
    assert store.find(BASE) == ()
    assert damages == []
    assert ref_path(root, entry).exists()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(errno.EIO, "bad"), (errno.ESTALE, "miss"), (errno.EMFILE, "error"), (errno.EACCES, "error")],
)
def test_each_system_error_has_its_outcome(entry, v1, monkeypatch, code, outcome):
    def fail(fd, size):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "read", fail)
    if outcome == "error":
        with pytest.raises(StorageError, match="cannot read"):
            read_refs(v1, BASE_HEX)
    else:
        refs = read_refs(v1, BASE_HEX)
        assert refs.entries == ()
        assert bool(refs.bad) == (outcome == "bad")


def test_an_entry_is_the_same_as_itself(entry):
    check_same(entry, entry)
