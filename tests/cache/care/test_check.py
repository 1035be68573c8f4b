"""Checking and repairing: exactly what is damaged is said, and nothing else is touched."""

from __future__ import annotations

import os
import threading

import pytest
from support.stores import (
    BLOBS,
    assert_intact,
    blob_path,
    flipped,
    manifest_of,
    overwrite,
    quiet,
    ref_path,
)

from vcc.cache.care import finding
from vcc.cache.care.check import check
from vcc.cache.care.repair import repair
from vcc.cache.digest import Digest
from vcc.cache.publish import own_folder
from vcc.cache.pulled import Mark, write_mark
from vcc.cache.request import encode_ref
from vcc.cache.root import opened
from vcc.cache.shelf import Shelf

OTHER = {**BLOBS, "program": b"another"}


def flip(path):
    overwrite(path, flipped(path.read_bytes(), 0, 3))


def found(root):
    return [(one.kind, one.place[-1], one.artifacts) for one in check(root).findings]


def tree(root):
    return {
        p: p.read_bytes() for p in root.rglob("*") if p.is_file() and "quarantine" not in str(p)
    }


def test_a_whole_store_is_whole_and_everything_was_looked_at(root, two):
    checked = check(root)
    assert checked.findings == []
    assert checked.counts == {
        "refs": 2,
        "blobs": 8,
        "manifests": 2,
        "indexes": 0,
        "signatures": 0,
        "marks": 0,
    }
    assert checked.size == sum(
        p.stat().st_size for p in (root / "v1/cas").rglob("*") if p.is_file()
    )
    assert check(root / "nowhere").findings == []


def test_a_damaged_blob_is_told_with_all_that_use_it(root, two):
    shared = Digest.of(BLOBS["piece/0.so"])
    flip(blob_path(root, shared))
    ids = tuple(sorted(entry.artifact for entry in two))
    assert found(root) == [("blob", shared.hex, ids)]


def test_a_damaged_blob_that_nobody_uses_is_told_too(root, two):
    os.unlink(ref_path(root, two[0]))
    program = Digest.of(BLOBS["program"])
    flip(blob_path(root, program))
    assert found(root) == [("blob", program.hex, ())]


@pytest.mark.parametrize("size", [0, 1, 5, -1])
def test_truncated_and_missing_blobs_are_told(root, two, size):
    path = blob_path(root, Digest.of(BLOBS["program"]))
    data = path.read_bytes()
    overwrite(path, data[:size])
    assert found(root) == [("blob", path.name, (two[0].artifact,))]
    path.unlink()
    assert found(root) == [("blob", path.name, (two[0].artifact,))]


def test_damaged_manifests_and_refs_are_told(root, two):
    first, second = two
    flip(blob_path(root, first.artifact))
    flip(ref_path(root, second))
    assert sorted(found(root)) == [
        ("blob", first.artifact, (first.artifact,)),
        ("ref", second.artifact, ()),
    ]
    blob_path(root, first.artifact).unlink()
    assert ("manifest", first.artifact, (first.artifact,)) in found(root)


def test_a_ref_that_says_something_else_than_its_manifest_is_told(root, two):
    import msgspec

    first, _ = two
    overwrite(ref_path(root, first), encode_ref(msgspec.structs.replace(first, size=1)))
    assert found(root) == [("manifest", first.artifact, (first.artifact,))]


def test_what_a_later_vcc_wrote_is_not_judged(root, two):
    text = b'{"format_version":"9.0"}'
    record = text + b"\n" + Digest.of(text).hex.encode() + b"\n"
    path = ref_path(root, two[0]).with_name("e" * 64)
    overwrite(path, record)
    checked = check(root)
    assert (checked.findings, checked.newer) == ([], 1)


def test_damaged_indexes_and_their_blobs_are_told_and_set_aside(root):
    data = b"tables"
    digest = Digest.of(data).hex
    index = {"kind": "products", "format": 2, "bundle": [digest, len(data)]}
    name = Shelf(root, ("gemm", "a" * 64)).publish(index, {digest: data})
    path = root / "v1/gemm" / ("a" * 64) / name
    assert check(root).counts["indexes"] == 1
    assert found(root) == []
    flip(blob_path(root, digest))
    assert ("index", digest, ()) in found(root)
    blob_path(root, digest).unlink()
    assert found(root) == [("index", name, ())]
    repair(root)
    assert not path.exists()
    assert found(root) == []


def test_a_damaged_index_is_told(root):
    name = Shelf(root, ("gemm", "a" * 64)).publish({"kind": "x"}, {})
    flip(root / "v1/gemm" / ("a" * 64) / name)
    assert found(root) == [("index", name, ())]


def test_marks_and_signatures_that_cannot_be_read_are_told(root, two):
    first, second = two
    with opened(root, create=False) as store, own_folder(store) as own:
        for entry in two:
            write_mark(store, own, entry.artifact, Mark(url="file:///x", when=1))
    overwrite(root / "v1/pulled" / first.artifact, b"{}")
    folder = root / "v1/signatures" / second.artifact
    folder.mkdir(parents=True)
    (folder / ("0" * 64)).write_bytes(b"no signature")
    assert sorted(found(root)) == [("mark", first.artifact, ()), ("signature", "0" * 64, ())]


def test_repair_sets_aside_what_is_bad_and_leaves_the_rest_byte_for_byte(root, two):
    first, second = two
    flip(blob_path(root, Digest.of(BLOBS["program"])))
    before = tree(root)
    done = repair(root)
    gone = {ref_path(root, first), blob_path(root, Digest.of(BLOBS["program"]))}
    assert {root / "v1" / "/".join(at) for at in done.aside} == gone
    assert tree(root) == {path: data for path, data in before.items() if path not in gone}
    assert len(list((root / "v1/quarantine").iterdir())) == 2
    assert found(root) == []
    assert_intact(root, second, OTHER)
    assert repair(root).aside == []
    quiet(root).publish(manifest_of("full", 1), BLOBS)
    assert_intact(root, first)


def test_repair_drops_refs_that_lead_nowhere(root, two):
    first, second = two
    blob_path(root, first.artifact).unlink()
    repair(root)
    assert not ref_path(root, first).exists()
    assert found(root) == []
    assert_intact(root, second, OTHER)


def test_repair_of_a_whole_store_moves_nothing(root, two):
    before = tree(root)
    assert repair(root).aside == []
    assert tree(root) == before


def test_a_writer_at_work_is_no_damage_and_loses_nothing(root, two):
    stop, seen = threading.Event(), []

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            store = quiet(root)
            entry = store.publish(manifest_of(f"m{number}", number), {"program": b"%d" % number})
            seen.append(entry)
            if number % 3 == 0:
                os.unlink(ref_path(root, seen.pop(0)))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        findings = [one for _ in range(15) for one in repair(root).checked.findings]
    finally:
        stop.set()
        writer.join()
    assert findings == []
    assert len(seen) > 3
    for entry in seen:
        assert quiet(root).load(entry).read_all()


@pytest.fixture
def slow_publisher(root, two, monkeypatch):
    """One that has written its ref and not yet looked whether its blobs are there still."""
    program = blob_path(root, Digest.of(BLOBS["program"]))
    data = program.read_bytes()
    monkeypatch.setattr("vcc.cache.care.check.PAUSES_S", ())
    with opened(root, create=False) as store, own_folder(store):
        program.unlink()  # a collection took it before it saw the ref
        yield program, data


def test_a_check_names_nothing_that_a_writer_gives_back_in_time(
    root, two, slow_publisher, monkeypatch
):
    program, data = slow_publisher
    real, looks = finding.at_work, []

    def done_at_the_third_look(store):
        looks.append(1)
        if len(looks) < 3:
            return real(store)
        overwrite(program, data)
        return set()

    monkeypatch.setattr(finding, "at_work", done_at_the_third_look)
    checked = check(root)
    assert (checked.findings, checked.notes) == ([], [])


def test_a_check_says_who_may_have_what_is_missing(root, two, slow_publisher, monkeypatch):
    for name in ("PATIENCE_S", "LAST_LOOK_S"):
        monkeypatch.setattr(f"vcc.cache.care.check.{name}", 0.05)
    (folder,) = (root / "v1/tmp").iterdir()
    checked = check(root)
    assert [one.artifacts for one in checked.findings] == [(two[0].artifact,)]
    assert checked.notes == [f"what is missing may be in the hands of tmp/{folder.name}"]


def test_a_check_names_nothing_of_an_artifact_that_is_removed_meanwhile(
    root, two, slow_publisher, monkeypatch
):
    def removed(store):
        ref_path(root, two[0]).unlink(missing_ok=True)
        return set()

    monkeypatch.setattr(finding, "at_work", removed)
    assert check(root).findings == []


def test_a_check_looks_twice_for_the_blobs_of_an_index(root, monkeypatch):
    data = b"a recorded product"
    digest = Digest.of(data)
    Shelf(root, ("gemm", "a" * 64)).publish(
        {"format": 2, "bundle": [digest.hex, len(data)]}, {digest.hex: data}
    )
    blob_path(root, digest).unlink()
    assert [one.kind for one in check(root).findings] == ["index"]
    monkeypatch.setattr(
        finding, "at_work", lambda store: overwrite(blob_path(root, digest), data) or set()
    )
    assert check(root).findings == []
