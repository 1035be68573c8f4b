"""Removal and pruning: ref first, shared blobs stay, pins and processes are respected."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.stores import BLOBS, assert_intact, blob_path, manifest_of, quiet, ref_path

from vcc.cache import roots
from vcc.cache.care import remove as removing
from vcc.cache.care.check import check
from vcc.cache.care.evict import Bounds
from vcc.cache.care.pins import pin_all, unpin_all
from vcc.cache.care.prune import items_of, keep_under, prune
from vcc.cache.care.remove import remove
from vcc.cache.care.sweep import collect
from vcc.cache.digest import Digest
from vcc.cache.errors import MissingArtifact
from vcc.cache.publish import own_folder
from vcc.cache.root import opened

OTHER = {**BLOBS, "program": b"another"}


def items(root, *entries):
    wanted = {entry.artifact for entry in entries}
    return [item for item in items_of(root).items if item.artifact in wanted]


def files(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def test_an_artifact_goes_with_what_only_it_has(root, two):
    first, second = two
    done = remove(root, items(root, first))
    assert [item.artifact for item in done.items] == [first.artifact]
    assert not blob_path(root, first.artifact).exists()
    assert not blob_path(root, Digest.of(BLOBS["program"])).exists()
    assert not ref_path(root, first).exists()
    assert_intact(root, second, OTHER)
    assert check(root).findings == []
    assert collect(root, grace_s=0).counts().keys() <= {"empty folders"}


def test_a_dry_run_says_the_same_and_changes_nothing(root, two):
    before = files(root)
    told = remove(root, items(root, two[0]), dry_run=True)
    assert files(root) == before
    done = remove(root, items(root, two[0]))
    assert [i.artifact for i in told.items] == [i.artifact for i in done.items]
    assert {one.place for one in told.swept.gone} == {one.place for one in done.swept.gone}
    assert told.swept.size == done.swept.size


def test_pinned_artifacts_stay_until_they_are_unpinned(root, two):
    first, _ = two
    assert pin_all(root, [first.artifact]) == {first.artifact}
    for force in (False, True):
        done = remove(root, items(root, first), force=force)
        assert [(i.artifact, why) for i, why in done.kept] == [(first.artifact, "it is pinned")]
    assert_intact(root, first)
    roots.release()
    assert unpin_all(root, [first.artifact]) == {first.artifact}
    assert remove(root, items(root, first)).items


def test_what_a_process_uses_stays_unless_it_is_forced(root, two):
    code = (
        "import sys; from pathlib import Path; from support.stores import quiet, BASE\n"
        "store = quiet(Path(sys.argv[1]))\n"
        "for entry in store.find(BASE): store.load(entry).read_all()\n"
        "print('loaded', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout.readline() == "loaded\n"
    first, second = two
    done = remove(root, items(root, first))
    assert [why for _, why in done.kept] == ["a process uses it"]
    assert prune(root, Bounds(max_size=1)).evicted == ()
    assert_intact(root, first)
    assert remove(root, items(root, first), force=True).items
    assert not blob_path(root, first.artifact).exists()
    process.kill()  # it dies with its root lying there
    process.communicate()
    assert remove(root, items(root, second)).items
    roots.release()


def test_an_artifact_that_comes_into_use_while_it_goes_gets_its_ref_back(root, two, monkeypatch):
    first, second = two
    real = removing._moved

    def held_meanwhile(store, own, item, done):
        moved = real(store, own, item, done)
        if item.artifact == first.artifact:
            roots.hold(store, first.artifact)
        else:
            roots.pin(store, second.artifact)
        return moved

    monkeypatch.setattr(removing, "_moved", held_meanwhile)
    done = remove(root, items(root, first, second))
    assert done.items == []
    assert {why for _, why in done.kept} == {"a process uses it", "it is pinned"}
    assert_intact(root, first)
    assert_intact(root, second, OTHER)
    roots.release()


def test_a_ref_whose_content_another_process_took_meanwhile_does_not_come_back(
    root, two, monkeypatch
):
    first, second = two
    chosen, real = items(root, first), removing._moved

    def taken_meanwhile(store, own, item, done):
        moved = real(store, own, item, done)
        monkeypatch.setattr(removing, "_moved", real)
        assert remove(root, chosen).items  # finds no ref, and takes what it led to
        roots.hold(store, first.artifact)  # by one who knew the ref: its next read is a miss
        return moved

    monkeypatch.setattr(removing, "_moved", taken_meanwhile)
    remove(root, chosen)
    assert not blob_path(root, first.artifact).exists()
    assert not ref_path(root, first).exists()
    assert check(root).findings == []
    assert_intact(root, second, OTHER)
    roots.release()


def test_pinning_what_was_removed_just_now_says_so(root, two):
    remove(root, items(root, two[0]))
    with pytest.raises(MissingArtifact, match="removed just now"):
        pin_all(root, [two[0].artifact])
    with opened(root, create=False) as store:
        assert roots.pinned(store) == frozenset()


def test_removing_twice_is_no_error(root, two):
    found = items(root, two[0])
    remove(root, found)
    assert remove(root, found).kept == []
    assert_intact(root, two[1], OTHER)


def test_blobs_of_somebody_who_publishes_them_right_now_stay(root, two):
    first, _ = two
    program = blob_path(root, Digest.of(BLOBS["program"]))
    with opened(root, create=False) as store, own_folder(store) as own:
        os.link(program, f"{own.path}/held")
        remove(root, items(root, first))
        assert program.exists()


def test_an_artifact_that_is_published_again_meanwhile_keeps_its_blobs(root, two, monkeypatch):
    first, _ = two
    real = removing.sweep

    def published_first(scene, garbage, done):
        quiet(root).publish(manifest_of("full", 1), BLOBS)
        real(scene, garbage, done)

    monkeypatch.setattr(removing, "sweep", published_first)
    remove(root, items(root, first))
    assert_intact(root, first)


def test_pruning_keeps_a_store_within_a_size_and_says_why(root):
    store = quiet(root)
    for number in range(1, 6):
        blobs = {"program": bytes([number]) * 10_000}
        store.publish(manifest_of(f"m{number}", number, build_ms=number), blobs)
    found = prune(root, Bounds(max_size=25_000))
    assert [one.item.build_ms for one in found.evicted] == [1, 2, 3]
    assert "larger than 25000 bytes" in found.evicted[0].why
    assert len(items_of(root).items) == 2
    assert sum(p.stat().st_size for p in (root / "v1/cas").rglob("*") if p.is_file()) < 25_000
    assert check(root).findings == []


def test_pruning_chooses_only_among_what_passes(root, two):
    found = prune(root, Bounds(max_size=1), passes=lambda items: items[:1])
    assert [one.item.artifact for one in found.evicted] == [two[1].artifact]


def test_after_a_build_the_store_is_kept_under_its_size_but_for_what_was_built(root, two):
    assert keep_under(root, 0, two[1].artifact) == ""
    assert keep_under(root, 10**9, two[1].artifact) == ""
    assert "evicted 1 artifacts" in keep_under(root, 1, two[1].artifact)
    assert_intact(root, two[1], OTHER)
    assert "nothing in it may go" in keep_under(root, 1, two[1].artifact)


def test_trouble_with_the_largest_size_is_a_note_and_not_an_error(root, two, monkeypatch):
    monkeypatch.setattr(os, "rename", lambda *a, **k: (_ for _ in ()).throw(OSError(28, "full")))
    assert "VCC_MAX_SIZE" in keep_under(root, 1, two[1].artifact)
    assert_intact(root, two[0])
