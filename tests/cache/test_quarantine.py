"""Quarantine: moved where it can be, removed where not, never an error (row 62)."""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest
from support.stores import child, exit_of

from vcc.cache.folder import FOLDER_FLAGS, Folder
from vcc.cache.quarantine import set_aside


@contextmanager
def folder_at(path):
    fd = os.open(path, FOLDER_FLAGS)
    try:
        yield Folder(fd, str(path))
    finally:
        os.close(fd)


@pytest.fixture
def store(tmp_path):
    (tmp_path / "bad").write_bytes(b"bad")
    with folder_at(tmp_path) as folder:
        yield folder


def test_a_bad_file_is_kept_under_a_name_of_its_own(store, tmp_path):
    assert set_aside(store, store, "bad")
    (tmp_path / "bad").write_bytes(b"bad again")
    assert set_aside(store, store, "bad")
    kept = sorted((tmp_path / "quarantine").iterdir())
    assert sorted(path.read_bytes() for path in kept) == [b"bad", b"bad again"]
    assert not (tmp_path / "bad").exists()


def test_a_file_that_is_gone_already_is_fine(store):
    assert set_aside(store, store, "never")


def test_where_quarantine_is_in_the_way_the_bad_file_is_removed(store, tmp_path):
    (tmp_path / "quarantine").write_text("not a folder")
    assert set_aside(store, store, "bad")
    assert not (tmp_path / "bad").exists()


def test_on_a_read_only_store_it_stays_and_nothing_is_raised(open_tmp):
    def work():
        (open_tmp / "bad").write_bytes(b"bad")
        open_tmp.chmod(0o500)
        try:
            with folder_at(open_tmp) as folder:
                assert not set_aside(folder, folder, "bad")
        finally:
            open_tmp.chmod(0o700)

    assert exit_of(child(work, uid=65534)) == 0
