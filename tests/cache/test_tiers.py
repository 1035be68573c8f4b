"""Tiers: lower directories are asked after the local store, are never written, and may fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stores import (
    BASE,
    BLOBS,
    Told,
    blob_path,
    child,
    exit_of,
    flipped,
    manifest_of,
    overwrite,
    ref_path,
)

from vcc.cache.blob import Damaged
from vcc.cache.errors import MissingArtifact, StorageError
from vcc.cache.store import Store
from vcc.cache.tiers import tiers_of
from vcc.cache.trouble import Unsafe


def snapshot(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def damage(path: Path) -> None:
    overwrite(path, flipped(path.read_bytes(), 5, 2))


def test_tiers_come_local_first_and_none_twice(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    tiers = tiers_of(a, (b, a, b))
    assert [(tier.name, tier.root, tier.writable) for tier in tiers] == [
        ("local", a, True),
        ("lower 1", b, False),
    ]


def test_settings_name_the_lower_directories(monkeypatch, tmp_path, lower):
    monkeypatch.setenv("VCC_LOWER_DIRS", f"{lower}:{tmp_path / 'other'}")
    assert Store.open(tmp_path / "local").lower == (lower, tmp_path / "other")


def test_what_lies_in_a_lower_directory_is_found_and_nothing_is_made(local, lower):
    entry = Store(lower).publish(manifest_of(), BLOBS)
    before = snapshot(lower)
    told = Told(local, lower)
    assert told.store.find(BASE) == (entry,)
    assert list(told.store.entries()) == [entry]
    loaded = told.store.load(entry)
    assert (loaded.read_all(), loaded.tier) == (dict(BLOBS), "lower 1")
    assert loaded.trust.startswith("written by ")
    assert snapshot(lower) == before
    assert not local.exists()
    assert (told.damages, told.troubles) == ([], [])


def test_entries_of_all_tiers_are_joined_newest_first_and_equal_ones_come_once(local, lower):
    below = [Store(lower).publish(manifest_of(created=n), BLOBS) for n in (1, 3)]
    mine = [Store(local).publish(manifest_of(created=n), BLOBS) for n in (2, 3)]
    store = Told(local, lower).store
    assert store.find(BASE) == (mine[1], mine[0], below[0])
    assert below[1] == mine[1]
    assert [store.load(entry).tier for entry in store.find(BASE)] == ["local", "local", "lower 1"]


def test_publishing_goes_to_the_local_tier_whole(local, lower):
    """What is below may be gone tomorrow: an entry never depends on another tier."""
    Store(lower).publish(manifest_of(created=1), BLOBS)
    before = snapshot(lower)
    entry = Told(local, lower).store.publish(manifest_of(created=2), BLOBS)
    assert snapshot(lower) == before
    assert Store(local).load(entry).read_all() == dict(BLOBS)


@pytest.mark.parametrize("bad", ["manifest", "blob"])
@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_what_the_local_tier_lacks_or_spoils_is_read_from_the_next(local, lower, bad, how):
    entry = Store(lower).publish(manifest_of(), BLOBS)
    Store(local).publish(manifest_of(), BLOBS)
    digest = Store(local).load(entry).manifest.blobs["program"].sha256
    path = blob_path(local, entry.artifact if bad == "manifest" else digest)
    damage(path) if how == "damaged" else path.unlink()
    told = Told(local, lower)
    for _ in range(3):
        assert told.store.load(entry).read_all() == dict(BLOBS)
    assert not path.exists()
    if how == "damaged":
        assert [(one.artifact, one.tier, one.removed) for one in told.damages] == [
            (path.name, "local", True)
        ]
    else:
        assert told.damages == []


@pytest.mark.parametrize("bad", ["ref", "manifest", "blob"])
def test_damage_in_a_lower_tier_is_told_once_and_stays_where_it_is(local, lower, bad):
    entry = Store(lower).publish(manifest_of(), BLOBS)
    digest = Store(lower).load(entry).manifest.blobs["program"].sha256
    path = ref_path(lower, entry) if bad == "ref" else blob_path(lower, digest)
    path = blob_path(lower, entry.artifact) if bad == "manifest" else path
    damage(path)
    before = snapshot(lower)
    told = Told(local, lower)
    for _ in range(3):
        for found in told.store.find(BASE):
            with pytest.raises(Damaged) as caught:
                told.store.load(found).read_all()
            told.store.quarantine(found, caught.value)
    assert told.store.find(BASE) == ()
    assert [(one.tier, one.removed) for one in told.damages] == [("lower 1", False)]
    assert snapshot(lower) == before
    assert not local.exists()


def test_a_rebuild_over_a_damaged_lower_entry_is_used_from_then_on(local, lower):
    entry = Store(lower).publish(manifest_of(), BLOBS)
    damage(blob_path(lower, entry.artifact))
    mine = Told(local, lower).store.publish(manifest_of(), BLOBS)
    assert mine == entry
    told = Told(local, lower)
    assert told.store.load(mine).read_all() == dict(BLOBS)
    assert told.damages == []


def test_the_second_lower_directory_makes_up_for_the_first(local, lower, tmp_path):
    second = tmp_path / "second"
    entry = Store(lower).publish(manifest_of(), BLOBS)
    Store(second).publish(manifest_of(), BLOBS)
    damage(blob_path(lower, entry.artifact))
    told = Told(local, lower, second)
    loaded = told.store.load(entry)
    assert (loaded.read_all(), loaded.tier) == (dict(BLOBS), "lower 2")
    assert [one.tier for one in told.damages] == ["lower 1"]


def test_gone_everywhere_is_a_miss(local, lower):
    entry = Store(lower).publish(manifest_of(), BLOBS)
    blob_path(lower, entry.artifact).unlink()
    with pytest.raises(MissingArtifact):
        Told(local, lower).store.load(entry)


# Trouble of one tier


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("what", ["missing", "unsafe", "a file"])
def test_a_lower_directory_in_trouble_is_told_once_or_fatal_when_strict(local, lower, what, strict):
    entry = Store(local).publish(manifest_of(), BLOBS)
    if what == "unsafe":
        Store(lower).publish(manifest_of(created=1), BLOBS)
        lower.chmod(0o777)
    elif what == "a file":
        lower.write_text("")
    told = Told(local, lower, strict=strict)
    if strict:
        with pytest.raises(Unsafe if what == "unsafe" else StorageError) as caught:
            told.store.find(BASE)
        assert caught.value.hint
        return
    for _ in range(3):
        assert told.store.find(BASE) == (entry,)
        assert told.store.load(entry).read_all() == dict(BLOBS)
    assert len(told.troubles) == 1
    assert str(lower) in str(told.troubles[0])
    assert told.damages == []


def test_an_unsafe_local_root_is_refused_whatever_lies_below(local, lower):
    Store(lower).publish(manifest_of(), BLOBS)
    local.mkdir()
    local.chmod(0o777)
    with pytest.raises(Unsafe):
        Told(local, lower).store.find(BASE)


def test_a_local_tier_that_cannot_be_read_leaves_the_lower_ones(open_tmp):
    def work():
        local, lower = open_tmp / "local", open_tmp / "lower"
        mine = Store(local).publish(manifest_of(created=1), BLOBS)
        entry = Store(lower).publish(manifest_of(created=2), BLOBS)
        (local / "v1").chmod(0)
        told = Told(local, lower)
        try:
            assert told.store.find(BASE) == (entry,)
            assert told.store.load(entry).read_all() == dict(BLOBS)
            assert [error.id for error in told.troubles] == ["STORAGE"]
            with pytest.raises(StorageError):
                Told(local).store.find(BASE)
            with pytest.raises(StorageError):
                told.store.load(mine)
        finally:
            (local / "v1").chmod(0o700)

    assert exit_of(child(work, uid=65534)) == 0


def test_a_lower_directory_that_is_read_only_in_earnest_works(open_tmp):
    """Row 20 for a lower tier: no write is tried, so none can fail."""

    def work():
        local, lower = open_tmp / "local", open_tmp / "lower"
        entry = Store(lower).publish(manifest_of(), BLOBS)
        folders = [lower, *(path for path in lower.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o500)
        try:
            told = Told(local, lower)
            assert told.store.load(*told.store.find(BASE)).read_all() == dict(BLOBS)
            told.store.quarantine(entry, "asked for")
            assert told.store.find(BASE) == ()
            assert (told.troubles, [one.removed for one in told.damages]) == ([], [False])
        finally:
            for folder in folders:
                folder.chmod(0o700)

    assert exit_of(child(work, uid=65534)) == 0
