"""Figures of a store: hits, misses, seconds saved, and what takes room."""

from __future__ import annotations

from support.stores import BLOBS, manifest_of, quiet

from vcc.cache.care.room import room
from vcc.cache.care.stats import stats
from vcc.cache.use import note_boot, note_missed


def test_a_store_that_is_not_there_has_no_figures(root):
    assert stats(root).total.artifacts == 0
    assert room(root) == {}


def test_hits_and_misses_are_summed_by_model(root):
    store = quiet(root)
    first = store.publish(manifest_of("full", 1, build_ms=2000, title="a"), BLOBS)
    other = (("model.digest", "0" * 64),)
    second = store.publish(
        manifest_of(request=other, open_fields=(), build_ms=9000, title="b"), {"program": b"x"}
    )
    for _ in range(3):
        note_boot(root, first.artifact)
    note_boot(root, second.artifact)
    note_missed(root, first.base.digest.hex)
    note_missed(root, "e" * 64)  # of a model that was never built
    found = stats(root)
    assert [(m.title, m.hits, m.misses, m.saved_s) for m in found.models] == [
        ("b", 1, 0, 9.0),
        ("a", 3, 1, 6.0),
    ]
    assert (found.total.hits, found.total.misses, found.total.saved_s) == (4, 2, 15.0)
    assert found.total.size == sum(
        p.stat().st_size for p in (root / "v1/cas").rglob("*") if p.is_file()
    )


def test_a_model_is_named_by_what_its_artifacts_share(root):
    store = quiet(root)
    for mode, title in (("full", "m · bf16 · A · full"), ("none", "m · bf16 · B · none")):
        store.publish(manifest_of(mode, 1, title=title), BLOBS)
    assert [(one.title, one.artifacts) for one in stats(root).models] == [("m · bf16", 2)]


def test_a_model_of_several_names_has_them_all(root):
    store = quiet(root)
    for mode, title in (("full", "n · bf16 · full"), ("none", "m · bf16 · none")):
        store.publish(manifest_of(mode, 1, title=title), BLOBS)
    assert [(one.title, one.artifacts) for one in stats(root).models] == [("m, n", 2)]


def test_room_is_told_by_kind_and_adds_up(root, two):
    quiet(root).quarantine(two[0], "asked for")
    found = room(root)
    assert found["blobs in use"][0] == 6
    assert found["unreferenced blobs"][0] == 2
    assert found["quarantine"][0] == 1
    files = [p for p in root.rglob("*") if p.is_file()]
    assert sum(size for _, size in found.values()) == sum(p.stat().st_size for p in files)
    assert sum(count for count, _ in found.values()) == len(files)
