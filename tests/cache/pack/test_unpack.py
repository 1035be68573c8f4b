"""Importing packs: all or nothing, under the gate, and marked as from elsewhere."""

from __future__ import annotations

import errno
import os

import pytest
from support.packs import import_into, pack_of
from support.stores import BLOBS, assert_intact, flipped, manifest_of

from vcc.cache.errors import StorageError, VccError
from vcc.cache.gate import Untrusted
from vcc.cache.pulled import read_mark
from vcc.cache.root import opened


def mark_of(store, artifact):
    with opened(store.root, create=False) as folder:
        return read_mark(folder, artifact)


def leftovers(store):
    tmp = store.root / "v1" / "tmp"
    return list(tmp.iterdir()) if tmp.exists() else []


def test_all_artifacts_arrive_marked(packed, source, target):
    done = import_into(target, packed)
    assert {one.entry for one in done} == set(source.entries()) == set(target.entries())
    for one in done:
        assert one.new
        assert one.trust == "taken from pack by hand"
        assert mark_of(target, one.entry.artifact).url == "pack"
        assert target.load(one.entry).read_all().items() >= BLOBS.items()
    assert leftovers(target) == []


def test_a_second_import_changes_nothing(packed, target):
    import_into(target, packed)
    assert not any(one.new for one in import_into(target, packed))


def test_what_was_built_here_is_not_marked(packed, source):
    done = import_into(source, packed)
    assert [mark_of(source, one.entry.artifact) for one in done] == [None, None]


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9, 0.999])
def test_a_damaged_pack_leaves_nothing_visible(packed, target, place):
    earlier = target.publish(manifest_of("piecewise"), BLOBS)
    with pytest.raises(VccError):
        import_into(target, flipped(packed, int(len(packed) * place), 2))
    assert list(target.entries()) == [earlier]
    assert_intact(target.root, earlier)
    assert leftovers(target) == []


def test_one_artifact_that_is_not_trusted_keeps_all_out(packed, target, monkeypatch):
    monkeypatch.setenv("VCC_POLICY", "signed")
    with pytest.raises(Untrusted):
        import_into(target, packed)
    assert list(target.entries()) == []
    assert not [one for one in target.root.rglob("*") if one.is_file()]


def test_a_full_disk_is_storage_trouble_and_leaves_nothing(packed, target, monkeypatch):
    write, left = os.write, [6]

    def full(fd, data):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError):
        import_into(target, packed)
    monkeypatch.undo()
    assert list(target.entries()) == []
    assert leftovers(target) == []
    import_into(target, packed)


def test_an_import_repairs_what_is_damaged_here(packed, source, target):
    import_into(target, packed)
    from support.stores import blob_path, overwrite

    from vcc.cache.digest import Digest

    bad = blob_path(target.root, Digest.of(BLOBS["piece/0.so"]))
    overwrite(bad, b"spoilt")
    import_into(target, packed)
    assert bad.read_bytes() == BLOBS["piece/0.so"]


def test_a_pack_of_a_pack_is_the_same(packed, target):
    import_into(target, packed)
    assert pack_of(target) == packed
