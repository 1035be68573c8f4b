"""Garbage collection: what nothing needs goes, in any interleaving nothing else does."""

from __future__ import annotations

import os

import pytest
from support.stores import BLOBS, assert_intact, blob_path, manifest_of, quiet, ref_path

from vcc.cache import roots
from vcc.cache.care import sweep as sweeping
from vcc.cache.care.sweep import collect
from vcc.cache.digest import Digest
from vcc.cache.process import Process, own_name
from vcc.cache.publish import own_folder, publish_content
from vcc.cache.root import opened
from vcc.cache.shelf import Shelf

HOUR, YEAR = 3600, 365 * 86400
DEAD = f"{Process.own().host}.{Process.own().boot}.4194305-1-0."


def kinds(done):
    return {kind: count for kind, (count, _) in done.counts().items()}


def stray(root, data=b"stray"):
    with opened(root, create=True) as store, own_folder(store) as own:
        publish_content(store, own, {Digest.of(data): data})
    return blob_path(root, Digest.of(data))


def test_a_store_that_is_not_there_has_no_garbage_and_is_not_made(root):
    assert collect(root).gone == []
    assert not root.exists()


def test_a_whole_store_has_no_garbage(root, two):
    assert kinds(collect(root, grace_s=0)) == {}
    for entry, blobs in zip(two, (BLOBS, {**BLOBS, "program": b"another"}), strict=True):
        assert_intact(root, entry, blobs)


def test_blobs_that_nothing_names_go_after_the_grace(root, two, later):
    path = stray(root)
    assert kinds(collect(root)) == {}
    later(HOUR - 60)
    assert kinds(collect(root)) == {}
    later(HOUR + 60)
    assert kinds(collect(root, dry_run=True)) == {"unreferenced blobs": 1}
    assert path.exists()
    done = collect(root)
    assert (kinds(done), done.size) == ({"unreferenced blobs": 1}, 5)
    assert not path.exists()
    assert_intact(root, two[0])


@pytest.mark.parametrize("years", [-10, -1, 1, 10])
def test_a_clock_that_jumps_deletes_no_entry_nor_what_is_live(root, two, later, years):
    with opened(root, create=False) as store:
        roots.hold(store, two[0].artifact)
        roots.pin(store, two[1].artifact)
        for entry in two:
            os.unlink(ref_path(root, entry))
        later(years * YEAR)
        assert "unreferenced blobs" not in kinds(collect(root))
        assert blob_path(root, two[0].artifact).exists()
        assert blob_path(root, two[1].artifact).exists()
    roots.release()


def test_ages_are_never_negative(root, later):
    path = stray(root)
    later(-10 * YEAR)
    assert kinds(collect(root)) == {}
    assert path.exists()


def test_temporary_folders_of_dead_processes_go_and_those_of_live_ones_stay(root, two):
    tmp = root / "v1/tmp"
    for name in (own_name(), DEAD + "0" * 32, "other-host.0f.1-2-3." + "0" * 32, "strange"):
        (tmp / name).mkdir()
        (tmp / name / "file").write_bytes(b"x" * 10)
    (tmp / (DEAD + "1" * 32) / "inner").mkdir(parents=True)
    (tmp / (DEAD + "1" * 32) / "inner" / "link").symlink_to(root)
    done = collect(root)
    assert kinds(done) == {"temporary folders": 2}
    assert done.size == 10
    assert len(list(tmp.iterdir())) == 3
    assert root.exists()


def test_temporary_folders_that_cannot_be_judged_go_by_age_of_the_newest_file(root, two, later):
    other = root / "v1/tmp" / ("other-host.0f.1-2-3." + "0" * 32)
    other.mkdir()
    later(2 * HOUR)
    assert kinds(collect(root)) == {"temporary folders": 1}
    other.mkdir()
    os.utime(other, (0, 0))
    later(0)
    (other / "x").touch()
    assert kinds(collect(root)) == {}


def test_stale_live_roots_go(root, two):
    live = root / "v1/roots/live"
    with opened(root, create=False) as store:
        roots.hold(store, two[0].artifact)
        (live / (DEAD + two[0].artifact)).touch()
        assert kinds(collect(root)) == {"stale live roots": 1}
        assert len(list(live.iterdir())) == 1
    roots.release()


def test_what_was_set_aside_goes_after_thirty_days(root, two, later):
    store = quiet(root)
    store.quarantine(two[0], "asked for")
    os.utime(next((root / "v1/quarantine").iterdir()), (0, 0))  # a file may be older than its stay
    later(29 * 86400)
    assert "quarantined files" not in kinds(collect(root))
    later(31 * 86400)
    assert kinds(collect(root))["quarantined files"] == 1


def test_notes_marks_and_signatures_go_with_their_artifact(root, two, later):
    gone = "e" * 64
    for where in ("notes/use", "pulled"):
        for name in (two[0].artifact, gone):
            path = root / "v1" / where / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    for name in (two[0].artifact, gone):
        (root / "v1/signatures" / name).mkdir(parents=True)
        (root / "v1/signatures" / name / ("0" * 64)).touch()
    assert kinds(collect(root)) == {}
    later(2 * HOUR)
    assert kinds(collect(root)) == {"orphans": 3}
    for where in ("notes/use", "pulled", "signatures"):
        assert [p.name for p in (root / "v1" / where).iterdir()] == [two[0].artifact]


def test_orphans_stay_while_another_process_writes(root, two, later, monkeypatch):
    mark = root / "v1/pulled" / ("e" * 64)
    mark.parent.mkdir()
    mark.touch()
    parent = Process.own()
    name = f"{parent.host}.{parent.boot}.{os.getppid()}-0-{parent.namespace}.{'0' * 32}"
    (root / "v1/tmp" / name).mkdir()
    later(2 * HOUR)
    assert kinds(collect(root)) == {}
    (root / "v1/tmp" / name).rmdir()
    assert kinds(collect(root)) == {"orphans": 1}


def test_an_empty_folder_of_refs_goes_after_the_grace(root, two, later):
    empty = root / "v1/refs" / ("a" * 64)
    empty.mkdir()
    assert kinds(collect(root)) == {}
    later(2 * HOUR)
    assert kinds(collect(root)) == {"empty folders": 1}
    assert not empty.exists()


def test_shelves_are_roots_of_their_blobs(root, later):
    data = b"a recorded product"
    Shelf(root, ("gemm", "a" * 64)).publish(
        {"kind": "x", "blob": Digest.of(data).hex}, {Digest.of(data).hex: data}
    )
    later(2 * HOUR)
    assert kinds(collect(root)) == {}
    assert blob_path(root, Digest.of(data)).exists()


def test_what_a_later_vcc_keeps_is_a_reason_to_keep_all_blobs(root, two, later):
    path = stray(root)
    (root / "v1/later-roots").mkdir()
    later(2 * HOUR)
    done = collect(root)
    assert path.exists()
    assert "later-roots" in done.notes[0]


def test_a_manifest_of_a_later_format_keeps_its_blobs(root, two, later):
    data = b"blob of the future"
    name = Digest.of(data).hex
    text = b'{"format_version":"9.0","things":["%s"]}' % name.encode()
    path, manifest = stray(root, data), stray(root, text)
    ref = root / "v1/refs" / ("a" * 64) / manifest.name
    ref.parent.mkdir()
    ref.touch()
    later(2 * HOUR)
    assert kinds(collect(root)) == {}
    ref.unlink()
    assert kinds(collect(root))["unreferenced blobs"] == 2
    assert not path.exists()


def test_a_ref_that_appears_while_its_blobs_are_taken_gets_them_back(root, two, monkeypatch):
    """The publisher was stopped between blobs and ref for longer than any grace."""
    entry = two[0]
    ref = ref_path(root, entry)
    hidden = root / "hidden"
    ref.rename(hidden)
    real = sweeping._put_back

    def appears(*args):
        assert not blob_path(root, entry.artifact).exists()
        hidden.rename(ref)
        return real(*args)

    monkeypatch.setattr(sweeping, "_put_back", appears)
    done = collect(root, grace_s=0)
    assert kinds(done) == {}
    assert_intact(root, entry)


def test_a_blob_that_is_being_published_has_two_names_and_stays(root, two):
    data = b"half published"
    with opened(root, create=False) as store, own_folder(store) as own:
        publish_content(store, own, {Digest.of(data): data})
        assert kinds(collect(root, grace_s=0)) == {}
    assert kinds(collect(root, grace_s=0)) == {"unreferenced blobs": 1}


def test_a_publisher_whose_blobs_were_taken_before_its_ref_writes_them_again(root, monkeypatch):
    from vcc.cache import publish as publishing

    real = publishing.publish_ref

    def collected_first(store, own, entry):
        for path in (root / "v1/cas").rglob("*"):
            if path.is_file():
                path.unlink()
        real(store, own, entry)

    monkeypatch.setattr(publishing, "publish_ref", collected_first)
    entry = quiet(root).publish(manifest_of(), BLOBS)
    assert_intact(root, entry)


def test_a_publisher_whose_folder_of_refs_was_removed_makes_it_again(root, two, monkeypatch):
    from vcc.cache import publish as publishing

    real, calls = publishing.sync_down, []

    def removed(store, names):
        real(store, names)
        if names == ("refs",) and not calls:
            calls.append(names)
            for path in (root / "v1/refs").rglob("*"):
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()

    monkeypatch.setattr(publishing, "sync_down", removed)
    request = (("model.digest", "0"),)
    entry = quiet(root).publish(manifest_of(request=request, open_fields=()), BLOBS)
    assert calls
    assert_intact(root, entry)


def test_nothing_is_collected_when_a_manifest_cannot_be_read(root, two, later, monkeypatch):
    path = stray(root)
    later(2 * HOUR)
    from vcc.cache.folder import Folder

    def read(self, name, **kwargs):
        raise PermissionError(13, "no", name)

    monkeypatch.setattr(Folder, "read", read)
    done = collect(root)
    assert path.exists()
    assert "unreferenced blobs stay" in done.notes[0]


def test_a_read_only_store_says_so_and_loses_nothing(root, two, monkeypatch):
    path = stray(root)

    def rename(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "rename", rename)
    done = collect(root, grace_s=0)
    assert path.exists()
    assert [one.kind for one, _ in done.failed] == ["unreferenced blobs"]


def test_more_garbage_than_one_batch_goes(root, monkeypatch, two):
    monkeypatch.setattr(sweeping, "BATCH", 3)
    for number in range(8):
        stray(root, b"%d" % number)
    assert kinds(collect(root, grace_s=0)) == {"unreferenced blobs": 8}
    assert list((root / "v1/tmp").iterdir()) == []
