"""The store as a whole: look-up, load, damage, concurrency."""

from __future__ import annotations

import resource
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores import (
    BASE,
    BLOBS,
    assert_intact,
    blob_path,
    child,
    exit_of,
    manifest_of,
    overwrite,
    quiet,
    ref_path,
)

from vcc.cache.canonical import FormatError
from vcc.cache.damage import Damage
from vcc.cache.digest import Digest
from vcc.cache.errors import MissingArtifact, StorageError
from vcc.cache.key import Key
from vcc.cache.loaded import Loaded
from vcc.cache.store import Store


def test_opening_and_looking_up_create_nothing(store, root):
    assert store.find(BASE) == ()
    assert list(store.entries()) == []
    assert not root.exists()


def test_what_was_published_is_found_and_read_back(store):
    entry = store.publish(manifest_of(), BLOBS)
    assert store.find(BASE) == (entry,)
    loaded = store.load(entry)
    assert loaded.read_all() == dict(BLOBS)
    assert Digest.of(loaded.manifest.encode()) == entry.id
    assert (entry.title, entry.size) == ("demo", sum(map(len, BLOBS.values())))


def test_open_fields_match_anything_unless_stated(store):
    entry = store.publish(manifest_of("full"), BLOBS)
    assert store.find(BASE, {"mode": "full"}) == (entry,)
    assert store.find(BASE, {}) == (entry,)
    assert store.find(BASE, {"mode": "none"}) == ()
    assert store.find(BASE, {"unheard-of": "1"}) == ()
    assert store.find(Key.of({"model.digest": "cd" * 32})) == ()


def test_the_newest_comes_first_and_the_caller_may_refuse_it(store):
    old, new = (store.publish(manifest_of(created=second), BLOBS) for second in (10, 20))
    assert store.find(BASE) == (new, old)
    assert store.find(BASE, accept=lambda entry: entry != new) == (old,)
    assert list(store.entries()) == [new, old]


def test_time_of_creation_is_filled_in_and_no_key_has_it(store):
    entry = store.publish(manifest_of(created=0), BLOBS)
    assert entry.created > 1_700_000_000
    assert entry.base == manifest_of(created=5).base


def test_a_title_from_an_odd_path_does_not_stop_a_build(store):
    entry = store.publish(manifest_of(title="mod\udcffel e\u0301"), BLOBS)
    assert entry.title == "mod?el \u00e9"
    assert store.load(entry).manifest.title == entry.title


def test_publishing_twice_is_one_entry(store):
    assert store.publish(manifest_of(), BLOBS) == store.publish(manifest_of(), BLOBS)
    assert len(store.find(BASE)) == 1


def test_a_miss_says_why(store):
    assert "empty" in str(store.misses(BASE))
    store.publish(manifest_of("full"), BLOBS)
    miss = store.misses(BASE, {"mode": "none"})
    assert "mode: found 'full', wanted 'none'" in str(miss)


def test_a_manifest_that_breaks_a_rule_is_not_published(store, root):
    with pytest.raises(FormatError):
        store.publish(manifest_of(), {"../x": b"1"})
    assert store.find(BASE) == ()


@settings(max_examples=12, deadline=None)
@given(
    blobs=st.dictionaries(
        st.from_regex(r"constant/[a-z0-9_]{1,8}", fullmatch=True),
        st.binary(max_size=200),
        max_size=4,
    )
)
def test_any_blobs_come_back_as_they_were(tmp_path_factory, blobs):
    store = quiet(tmp_path_factory.mktemp("any") / "store")
    entry = store.publish(manifest_of(), blobs)
    assert store.load(entry).read_all() == blobs


# Concurrency (rows 67, 73, 78).


def test_eight_processes_publish_the_same_key(root):
    pids = [child(lambda: quiet(root).publish(manifest_of(), BLOBS)) for _ in range(8)]
    assert [exit_of(pid) for pid in pids] == [0] * 8
    (entry,) = quiet(root).find(BASE)
    assert_intact(root, entry)
    assert list((root / "v1/tmp").iterdir()) == []


def test_a_reader_beside_writers_and_removers_sees_a_hit_or_a_miss(root):
    entry = quiet(root).publish(manifest_of(), BLOBS)

    def churn():
        store = quiet(root)
        for _ in range(15):
            ref_path(root, entry).unlink(missing_ok=True)
            blob_path(root, entry.artifact).unlink(missing_ok=True)
            store.publish(manifest_of(), BLOBS)

    pid = child(churn)
    damages: list[Damage] = []
    for _ in range(150):
        store = Store.open(root, on_damage=damages.append)
        for found in store.find(BASE):
            try:
                assert store.load(found).read_all() == dict(BLOBS)
            except MissingArtifact:
                continue
    assert exit_of(pid) == 0
    assert damages == []
    assert_intact(root, entry)


def test_threads_load_one_artifact(store):
    entry = store.publish(manifest_of(), BLOBS)
    results: list[bool] = []
    work = [
        threading.Thread(target=lambda: results.append(store.load(entry).read_all() == dict(BLOBS)))
        for _ in range(16)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert results == [True] * 16


# Stores that cannot be written (rows 20, 28, 32, 62): trouble is a StorageError, reads go on.


def test_a_read_only_store_answers_and_refuses_to_publish(open_tmp):
    root = open_tmp / "store"

    def work():
        store = quiet(root)
        entry = store.publish(manifest_of(), BLOBS)
        overwrite(ref_path(root, entry).with_name("c" * 64), b"junk")
        folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o500)
        damages: list[Damage] = []
        reader = Store.open(root, on_damage=damages.append)
        try:
            for _ in range(3):
                assert reader.find(BASE) == (entry,)
            assert reader.load(entry).read_all() == dict(BLOBS)
            assert [damage.removed for damage in damages] == [False]
            with pytest.raises(StorageError, match="Permission denied") as caught:
                reader.publish(manifest_of("none"), {"program": b"new"})
            assert "VCC_CACHE_DIR" in caught.value.hint
        finally:
            for folder in folders:
                folder.chmod(0o700)

    assert exit_of(child(work, uid=65534)) == 0


def test_a_root_that_cannot_be_read_or_made_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("x")
    for root in (tmp_path / "file" / "store", tmp_path / ("n" * 300)):
        with pytest.raises(StorageError) as caught:
            quiet(root).publish(manifest_of(), BLOBS)
        assert caught.value.hint
    with pytest.raises(StorageError):
        quiet(tmp_path / ("n" * 300)).find(BASE)


def test_an_odd_root_works(tmp_path):
    root = tmp_path / "a b\nc\udcff"
    entry = quiet(root).publish(manifest_of(), BLOBS)
    assert_intact(root, entry)


def test_an_artifact_in_memory_needs_no_store():
    loaded = Loaded.of(manifest_of(), BLOBS)
    assert loaded.read_all() == dict(BLOBS)


def test_a_file_size_limit_is_a_storage_error(root):
    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with pytest.raises(StorageError) as caught:
            quiet(root).publish(manifest_of(), {"program": bytes(10_000)})
        assert "ulimit -f" in caught.value.hint
        assert quiet(root).find(BASE) == ()

    assert exit_of(child(work)) == 0
