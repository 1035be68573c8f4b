"""Unsafe roots are refused with advice; safe ones are opened (rows 85-87)."""

from __future__ import annotations

import os

import pytest
from support.stores import BASE, BLOBS, manifest_of

from vcc.cache.blob import Damaged
from vcc.cache.errors import Exit, StorageError
from vcc.cache.store import Store
from vcc.cache.trouble import Unsafe


def both_ways(root):
    """Reading and writing must refuse alike."""
    for work in (
        lambda: Store.open(root).find(BASE),
        lambda: Store.open(root).publish(manifest_of(), BLOBS),
    ):
        with pytest.raises(Unsafe) as caught:
            work()
    assert caught.value.exit == Exit.INTEGRITY
    assert caught.value.id == "UNSAFE_ROOT"
    return caught.value


def test_a_root_that_everyone_may_change_is_refused(tmp_path):
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(0o777)
    error = both_ways(root)
    assert "chmod o-w" in error.hint
    assert list(root.iterdir()) == []


def test_a_root_in_a_folder_that_everyone_may_change_is_refused(tmp_path):
    parent = tmp_path / "open"
    parent.mkdir()
    parent.chmod(0o777)
    with pytest.raises(Unsafe):
        Store.open(parent / "store").publish(manifest_of(), BLOBS)
    parent.chmod(0o1777)
    Store.open(parent / "store").publish(manifest_of(), BLOBS)


def test_a_folder_inside_that_everyone_may_change_is_refused(tmp_path):
    root = tmp_path / "store"
    Store.open(root).publish(manifest_of(), BLOBS)
    (root / "v1").chmod(0o777)
    both_ways(root)


@pytest.mark.root
def test_a_root_of_another_account_is_refused_with_advice(tmp_path, as_root):
    root = tmp_path / "store"
    Store.open(root).publish(manifest_of(), BLOBS)
    os.chown(root, 65534, 65534)
    error = both_ways(root)
    assert "chown" in error.hint
    assert "VCC_CACHE_DIR" in error.hint
    assert "65534" in error.why


@pytest.mark.root
def test_a_parent_of_another_account_is_refused(tmp_path, as_root):
    parent = tmp_path / "theirs"
    parent.mkdir()
    Store.open(parent / "store").publish(manifest_of(), BLOBS)
    os.chown(parent, 65534, 65534)
    both_ways(parent / "store")


@pytest.mark.root
def test_a_symlink_of_another_account_is_refused(tmp_path, as_root):
    Store.open(tmp_path / "real").publish(manifest_of(), BLOBS)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    os.lchown(link, 65534, 65534)
    assert "symlink" in both_ways(link).why


def test_a_symlink_of_our_own_is_followed(tmp_path):
    entry = Store.open(tmp_path / "real").publish(manifest_of(), BLOBS)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Store.open(tmp_path / "link").find(BASE) == (entry,)


@pytest.mark.parametrize("name", ["v1", "v1/refs", "v1/cas"])
def test_a_symlink_inside_the_root_is_never_followed(tmp_path, name):
    root = tmp_path / "store"
    store = Store.open(root, on_damage=lambda damage: None)
    store.publish(manifest_of(), BLOBS)
    (root / name).rename(tmp_path / "moved")
    (root / name).symlink_to(tmp_path / "moved")
    before = sorted(path.name for path in (tmp_path / "moved").rglob("*"))
    with pytest.raises((StorageError, Damaged)):
        [store.load(entry) for entry in store.find(BASE)]
    with pytest.raises(StorageError, match="cannot write"):
        store.publish(manifest_of("none"), {"program": b"other"})
    assert sorted(path.name for path in (tmp_path / "moved").rglob("*")) == before
