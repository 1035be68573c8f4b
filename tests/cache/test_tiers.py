"""Tiers: lower directories are asked after the local store, are never written, and may fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.stores import (
    BASE,
    BLOBS,
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
from vcc.cache.gate import Untrusted
from vcc.cache.store import Store
from vcc.cache.tiers import tiers_of
from vcc.cache.trouble import Unsafe


class Told:
    """A store over `local` and `lower` directories, and what it said."""

    def __init__(self, local: Path, *lower: Path, **more: object) -> None:
        self.damages: list = []
        self.troubles: list = []
        self.store = Store(
            local, self.damages.append, lower=lower, on_trouble=self.troubles.append, **more
        )


@pytest.fixture
def local(tmp_path):
    return tmp_path / "local"


@pytest.fixture
def lower(tmp_path):
    return tmp_path / "lower"


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


# The gate


class Refusing:
    """A gate that admits what lies in the named tiers."""

    fast_check, fails_closed = True, False

    def __init__(self, *names: str) -> None:
        self.names, self.asked = names, []

    def admit(self, store, tier, entry, manifest, owner):
        self.asked.append((tier.name, entry.artifact, len(manifest), owner))
        if tier.name in self.names:
            return "listed"
        raise Untrusted(f"artifact {entry.id.short} is not trusted")


def test_the_gate_is_asked_before_any_blob_is_read(local, monkeypatch):
    entry = Store(local).publish(manifest_of(), BLOBS)
    gate = Refusing()
    told = Told(local, gate=gate)
    opened = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *a, **k: opened.append(path) or real(path, *a, **k)
    )
    with pytest.raises(Untrusted):
        told.store.load(entry)
    monkeypatch.undo()
    assert [name for name in opened if len(str(name)) == 64] == [entry.artifact]
    assert gate.asked == [("local", entry.artifact, gate.asked[0][2], os.geteuid())]
    told.store.quarantine(entry, Untrusted("no"))
    assert told.store.find(BASE) == (entry,)
    assert told.damages == []


def test_what_one_tier_may_not_give_another_may(local, lower):
    entry = Store(local).publish(manifest_of(), BLOBS)
    Store(lower).publish(manifest_of(), BLOBS)
    told = Told(local, lower, gate=Refusing("lower 1"))
    loaded = told.store.load(entry)
    assert (loaded.tier, loaded.trust) == ("lower 1", "listed")
    assert (told.damages, told.troubles) == ([], [])


def test_a_damaged_manifest_is_found_before_the_gate_is_asked(local):
    entry = Store(local).publish(manifest_of(), BLOBS)
    damage(blob_path(local, entry.artifact))
    gate = Refusing("local")
    with pytest.raises(Damaged):
        Told(local, gate=gate).store.load(entry)
    assert gate.asked == []


# The remote


class Remote:
    """A remote that publishes into the local store, or fails."""

    url = "test://"

    def __init__(self, answer) -> None:
        self.answer, self.asked = answer, 0

    def bring(self, root, base, usable):
        self.asked += 1
        return self.answer(root, base, usable)


def test_the_remote_is_asked_only_when_no_tier_has_a_usable_entry(local, lower):
    def answer(root, base, usable):
        entry = Store(root).publish(manifest_of("none"), BLOBS)
        assert usable(entry)
        return True

    remote = Remote(answer)
    Store(lower).publish(manifest_of("full"), BLOBS)
    store = Told(local, lower, remote=remote).store
    assert len(store.find(BASE, {"mode": "full"})) == 1
    assert remote.asked == 0
    (entry,) = store.find(BASE, {"mode": "none"})
    assert (remote.asked, store.load(entry).tier) == (1, "local")


@pytest.mark.parametrize("strict", [False, True])
def test_a_remote_that_fails_costs_a_build_or_is_fatal_when_strict(local, strict):
    def answer(root, base, usable):
        raise StorageError("no answer", "timeout")

    told = Told(local, remote=Remote(answer), strict=strict)
    if strict:
        with pytest.raises(StorageError, match="timeout"):
            told.store.find(BASE)
    else:
        assert [told.store.find(BASE) for _ in range(2)] == [(), ()]
        assert [str(error) for error in told.troubles] == ["no answer: timeout"]
