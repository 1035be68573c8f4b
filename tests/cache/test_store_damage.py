"""Damage in a store (rows 41-50, 63): always detected, never wrong bytes, reported once, healed."""

from __future__ import annotations

import logging
import random

import pytest
from support.stores import (
    BASE,
    BLOBS,
    assert_intact,
    blob_path,
    flipped,
    manifest_of,
    overwrite,
    quiet,
    ref_path,
)

from vcc.cache.blob import Damaged
from vcc.cache.damage import Damage
from vcc.cache.errors import IntegrityError, MissingArtifact, StorageError
from vcc.cache.key import Key
from vcc.cache.manifest import NewerFormat
from vcc.cache.store import Store

RNG = random.Random(20261129)


def test_a_flipped_bit_in_any_byte_of_a_ref_is_a_miss(store, root):
    path = ref_path(root, store.publish(manifest_of(), BLOBS))
    good = path.read_bytes()
    for offset in range(len(good)):
        overwrite(path, flipped(good, offset, offset % 8))
        seen: list[Damage] = []
        assert Store.open(root, on_damage=seen.append).find(BASE) == ()
        assert len(seen) == 1
        assert seen[0].removed
    overwrite(path, good)
    assert len(quiet(root).find(BASE)) == 1


def test_a_flipped_bit_in_any_byte_of_a_manifest_is_detected(store, root):
    entry = store.publish(manifest_of(), BLOBS)
    path = blob_path(root, entry.artifact)
    good = path.read_bytes()
    for offset in range(len(good)):
        overwrite(path, flipped(good, offset, offset % 8))
        with pytest.raises(Damaged):
            store.load(entry)


@pytest.mark.parametrize("name", BLOBS)
def test_200_flipped_bits_in_each_kind_of_blob_are_detected(store, root, name):
    entry = store.publish(manifest_of(), BLOBS)
    loaded = store.load(entry)
    path = blob_path(root, loaded.manifest.blobs[name].sha256)
    good = path.read_bytes()
    for _ in range(200):
        overwrite(path, flipped(good, RNG.randrange(len(good)), RNG.randrange(8)))
        with pytest.raises(Damaged):
            loaded.read(name)


def damaged_forms(good: bytes) -> dict[str, bytes]:
    return {
        "cut to 0": b"",
        "cut to 1": good[:1],
        "cut in half": good[: len(good) // 2],
        "cut by one": good[:-1],
        "one byte more": good + b"\0",
        "zeroed block": bytes(min(len(good), 512)) + good[512:],
        "other content": bytes(len(good)),
    }


@pytest.mark.parametrize("form", damaged_forms(b"x"))
@pytest.mark.parametrize("what", ["ref", "manifest", "program", "piece/0.so"])
def test_truncated_extended_and_zeroed_files_are_detected(store, root, what, form):
    entry = store.publish(manifest_of(), BLOBS)
    refs = store.load(entry).manifest.blobs
    paths = {"ref": ref_path(root, entry), "manifest": blob_path(root, entry.artifact)}
    path = paths.get(what) or blob_path(root, refs[what].sha256)
    overwrite(path, damaged_forms(path.read_bytes())[form])
    if what == "ref":
        assert store.find(BASE) == ()
    else:
        with pytest.raises(Damaged):
            store.load(entry).read_all()


def test_two_swapped_blobs_are_detected(store, root):
    blobs = {"constant/a": b"a" * 64, "constant/b": b"b" * 64}
    entry = store.publish(manifest_of(), blobs)
    one, two = (blob_path(root, ref.sha256) for ref in store.load(entry).manifest.blobs.values())
    first, second = one.read_bytes(), two.read_bytes()
    overwrite(one, second)
    overwrite(two, first)
    for name in blobs:
        with pytest.raises(Damaged):
            store.load(entry).read(name)


def test_a_ref_under_another_request_is_refused(store, root):
    entry = store.publish(manifest_of(), BLOBS)
    other = Key.of({"model.digest": "cd" * 32, "model.dtype": "fp32"})
    folder = root / "v1/refs" / other.digest.hex
    folder.mkdir(mode=0o700)
    overwrite(folder / entry.artifact, ref_path(root, entry).read_bytes())
    assert store.find(other) == ()


def test_a_manifest_of_another_request_is_named_field_by_field(store, root):
    entry = store.publish(manifest_of("full"), BLOBS)
    forged = type(entry)(
        **{f: getattr(entry, f) for f in entry.__struct_fields__ if f != "request"},
        request=tuple((k, "none" if k == "mode" else v) for k, v in entry.request),
    )
    with pytest.raises(IntegrityError, match="mode: found 'full', wanted 'none'") as caught:
        store.load(forged)
    assert caught.value.id == "KEY_MISMATCH"


def test_a_missing_blob_is_a_miss_and_publishing_again_heals_it(store, root):
    entry = store.publish(manifest_of(), BLOBS)
    blob_path(root, store.load(entry).manifest.blobs["program"].sha256).unlink()
    with pytest.raises(MissingArtifact):
        store.load(entry).read_all()
    store.publish(manifest_of(), BLOBS)
    assert_intact(root, entry)


def test_a_later_format_is_a_miss_and_stays_where_it_is(store, root, damages, monkeypatch):
    for module in ("vcc.cache.manifest", "vcc.cache.request"):
        monkeypatch.setattr(f"{module}.FORMAT_VERSION", "2.0")
    entry = store.publish(manifest_of(format_version="2.0"), BLOBS)
    monkeypatch.undo()
    assert store.find(BASE) == ()
    with pytest.raises(NewerFormat):
        store.load(entry)
    assert damages == []
    assert ref_path(root, entry).exists()


def test_a_damaged_entry_is_reported_once_set_aside_and_rebuilt(store, root, damages):
    entry = store.publish(manifest_of(), BLOBS)
    path = blob_path(root, store.load(entry).manifest.blobs["piece/0.so"].sha256)
    overwrite(path, flipped(path.read_bytes(), 7, 3))
    for _ in range(3):
        for found in store.find(BASE):
            with pytest.raises(Damaged) as caught:
                store.load(found).read_all()
            store.quarantine(found, caught.value)
            store.quarantine(found, caught.value)
    assert [damage.artifact for damage in damages] == [entry.artifact]
    assert len(list((root / "v1/quarantine").iterdir())) == 2
    assert store.publish(manifest_of(), BLOBS) == entry
    assert_intact(root, entry)


def test_trouble_that_says_nothing_against_an_entry_leaves_it_alone(store, damages):
    entry = store.publish(manifest_of(), BLOBS)
    store.quarantine(entry, StorageError("cannot read", "too many open files"))
    store.quarantine(entry, NewerFormat("later"))
    assert store.find(BASE) == (entry,)
    assert damages == []


def test_damage_is_logged_by_default(root, caplog):
    path = ref_path(root, Store.open(root).publish(manifest_of(), BLOBS))
    overwrite(path, b"junk")
    with caplog.at_level(logging.WARNING):
        assert Store.open(root).find(BASE) == ()
    assert "is bad and was set aside" in caplog.text


def test_publishing_over_a_damaged_blob_replaces_it(store, root, caplog):
    entry = store.publish(manifest_of(), BLOBS)
    path = blob_path(root, store.load(entry).manifest.blobs["program"].sha256)
    overwrite(path, b"junk")
    store.publish(manifest_of(created=1_800_000_000), BLOBS)
    assert_intact(root, entry)
    assert "is damaged" in caplog.text


def test_foreign_files_among_the_refs_are_left_alone(store, root, damages):
    entry = store.publish(manifest_of(), BLOBS)
    (ref_path(root, entry).parent / ".nfs0001").write_bytes(b"")
    (root / "v1/refs/README").write_bytes(b"")
    assert list(store.entries()) == [entry]
    assert damages == []
