"""Files that a sweep took: found again by their names, given back, never lost on the way."""

from __future__ import annotations

import errno
import os

import pytest
from support.stores import BASE, BLOBS, Told, assert_intact, blob_path, manifest_of, quiet, ref_path

from vcc.cache import taken
from vcc.cache.blob import place
from vcc.cache.care import sweep as sweeping
from vcc.cache.care.check import check
from vcc.cache.care.marks import AtWork, Marks
from vcc.cache.care.repair import repair
from vcc.cache.care.sweep import collect
from vcc.cache.digest import Digest
from vcc.cache.errors import MissingArtifact, StorageError
from vcc.cache.process import Process
from vcc.cache.publish import own_folder
from vcc.cache.pulled import PULLED, Mark, read_mark, write_mark
from vcc.cache.root import opened
from vcc.cache.shelf import Shelf
from vcc.cache.taken import (
    PLACES,
    give_back,
    is_in_hands,
    is_taken,
    place_of,
    read_taken,
    taken_name,
)

OWN = Process.own()
DEAD = f"{OWN.host}.{OWN.boot}.4194305-1-0.{'a' * 32}"
ELSEWHERE = f"another-host.{'0' * 32}.1-1-1.{'a' * 32}"
LIVING = f"{OWN.host}.{OWN.boot}.{os.getppid()}-0-{OWN.namespace}.{'a' * 32}"
PROGRAM = Digest.of(BLOBS["program"])


@pytest.fixture
def root(fast_tmp):
    return fast_tmp / "store"


@pytest.fixture
def entry(root):
    return quiet(root).publish(manifest_of(), BLOBS)


def take(root, at, by=DEAD):
    """As a sweep by that process has it, or had it when it was killed."""
    folder = root / "v1/tmp" / by
    folder.mkdir(mode=0o700, exist_ok=True)
    (root / "v1").joinpath(*at).rename(folder / taken_name(at))
    return folder / taken_name(at)


def take_all(root, entry, by=DEAD):
    loaded = quiet(root).load(entry).manifest
    for digest in {ref.digest for ref in loaded.blobs.values()} | {entry.id}:
        take(root, place(digest), by)


@pytest.mark.parametrize("what", PLACES)
def test_a_name_says_where_a_file_is_from(what):
    at = place(PROGRAM) if what == "blob" else (*PLACES[what], PROGRAM.hex)
    assert taken_name(at) == f"taken-{what}.{PROGRAM.hex}"
    assert place_of(taken_name(at)) == at


@pytest.mark.parametrize(
    "name",
    [
        "0",
        PROGRAM.hex,
        f"taken-blob.{PROGRAM.hex}x",
        f"taken-blob.{PROGRAM.hex.upper()}",
        f"taken-refs.{PROGRAM.hex}",
        f"taken-blob.../{PROGRAM.hex}",
        f"taken-blob.{PROGRAM.hex}\n",
    ],
)
def test_other_names_are_none_of_taken_files(name):
    assert not is_taken(name)


@pytest.mark.parametrize("by", [DEAD, ELSEWHERE], ids=["ended", "elsewhere"])
def test_a_reader_gives_back_what_it_misses(root, entry, by):
    take_all(root, entry, by)
    assert_intact(root, entry)
    assert check(root).findings == []


def test_what_one_that_cannot_be_seen_has_keeps_its_name_there(root, entry):
    """It may run, and then destroys that name and nothing else."""
    name = take(root, place(PROGRAM), ELSEWHERE)
    assert_intact(root, entry)
    assert name.exists()
    name.unlink()
    assert_intact(root, entry)


def test_a_reader_leaves_a_sweep_that_runs_alone(root, entry):
    take(root, place(PROGRAM), LIVING)
    loaded = quiet(root).load(entry)
    with pytest.raises(MissingArtifact):
        loaded.read_all()


def test_a_reader_of_a_lower_tier_writes_nothing(root, entry, tmp_path):
    name = take(root, place(PROGRAM))
    told = Told(tmp_path / "local", root)
    with pytest.raises(MissingArtifact):
        told.store.load(entry).read_all()
    assert name.exists()
    assert not blob_path(root, PROGRAM).exists()


def test_a_file_that_is_there_again_stays_and_the_taken_one_goes(root, entry):
    name = take(root, place(PROGRAM))
    quiet(root).publish(manifest_of(), BLOBS)
    written = blob_path(root, PROGRAM).stat().st_ino
    with opened(root, create=False) as store:
        assert give_back(store, place(PROGRAM))
    assert blob_path(root, PROGRAM).stat().st_ino == written
    assert not name.exists()


def test_without_hard_links_it_is_moved_back(root, entry, monkeypatch):
    def link(*args, **options):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    take_all(root, entry)
    assert_intact(root, entry)


def test_what_cannot_be_given_back_is_missing_still(root, entry, monkeypatch):
    name = take(root, place(PROGRAM))
    monkeypatch.setattr(taken, "_name_again", _full)
    with opened(root, create=False) as store:
        assert not give_back(store, place(PROGRAM))
    assert name.exists()


def test_a_shelf_gives_back_what_it_misses(root):
    data = b"a recorded product"
    digest = Digest.of(data)
    shelf = Shelf(root, ("gemm", "a" * 64))
    shelf.publish({"format": 2, "bundle": [digest.hex, len(data)]}, {digest.hex: data})
    take(root, place(digest))
    assert check(root).findings == []
    assert shelf.read(digest.hex, len(data)) == data
    take(root, place(digest))
    with shelf.bundle(digest.hex, len(data)) as bundle:
        assert os.pread(bundle.fd, 100, 0) == data


def test_a_collection_gives_back_before_it_destroys_a_folder_manifests_first(
    root, entry, monkeypatch
):
    take_all(root, entry)
    (root / "v1/tmp" / DEAD / "0123").write_bytes(b"a temporary file")
    order, real = [], taken.put_in_place

    def noted(store, own, name, **options):
        order.append(name)
        real(store, own, name, **options)

    monkeypatch.setattr(taken, "put_in_place", noted)
    done = collect(root, grace_s=0)
    assert order[0] == taken_name(place(entry.id))
    assert len(order) == 1 + len({Digest.of(data) for data in BLOBS.values()})
    assert done.counts() == {"temporary folders": (1, 16)}
    assert os.listdir(root / "v1/tmp") == []
    assert_intact(root, entry)


def test_a_folder_stays_whose_files_cannot_be_given_back(root, entry, monkeypatch):
    name = take(root, place(PROGRAM))
    monkeypatch.setattr(taken, "_name_again", _full)
    done = collect(root, grace_s=0)
    assert [one.place[-1] for one, _ in done.failed] == [DEAD]
    assert name.read_bytes() == BLOBS["program"]
    monkeypatch.undo()
    assert_intact(root, entry)


def test_a_repair_gives_back_and_sets_nothing_aside(root, entry):
    take_all(root, entry)
    done = repair(root)
    assert (done.aside, done.busy, done.checked.findings) == ([], (), [])
    assert_intact(root, entry)


@pytest.mark.parametrize("by", [DEAD, ELSEWHERE, LIVING], ids=["ended", "elsewhere", "runs"])
def test_a_check_reads_taken_files_where_they_are(root, entry, by):
    name = take(root, place(PROGRAM), by)
    checked = check(root)
    assert (checked.findings, checked.taken) == ([], 1)
    name.write_bytes(b"{}"[::-1] + bytes(10))
    (found,) = check(root).findings
    assert found.artifacts == (entry.artifact,)


@pytest.mark.parametrize("by", [DEAD, ELSEWHERE, LIVING], ids=["ended", "elsewhere", "runs"])
def test_what_a_taken_manifest_names_is_known(root, entry, by):
    take(root, place(entry.id), by)
    with opened(root, create=False) as store:
        assert PROGRAM.hex in Marks(store, 0.0).marked()


def test_where_a_folder_cannot_be_looked_into_nothing_is_sure(root, entry, monkeypatch):
    """Another account's, in a shared store."""
    blob_path(root, entry.id).unlink()
    with opened(root, create=False) as store:
        monkeypatch.setattr("vcc.cache.care.marks.closed_takers", lambda store: True)
        with pytest.raises(AtWork):
            Marks(store, 0.0).marked()


def test_a_mark_in_the_hands_of_a_sweep_counts(root, entry):
    """Else what was pulled would pass for a build of this account."""
    mark = Mark(url="s3://bucket", when=1)
    with opened(root, create=False) as store, own_folder(store) as own:
        write_mark(store, own, entry.artifact, mark)
        for by in (DEAD, ELSEWHERE, LIVING):
            name = take(root, (PULLED, entry.artifact), by)
            assert read_mark(store, entry.artifact) == mark
            name.rename(root / "v1" / PULLED / entry.artifact)


def test_signatures_that_come_back_join_those_that_came_meanwhile(root, entry):
    where = root / "v1/signatures" / entry.artifact
    where.mkdir(parents=True)
    (where / "old").write_bytes(b"1")
    (where / "both").write_bytes(b"1")
    take(root, ("signatures", entry.artifact))
    where.mkdir()
    (where / "both").write_bytes(b"2")
    collect(root, grace_s=0)
    found = {path.name: path.read_bytes() for path in where.iterdir()}
    assert found == {"old": b"1", "both": b"2"}
    assert os.listdir(root / "v1/tmp") == []


def test_an_interrupted_sweep_gives_back_what_it_has(root, entry, monkeypatch):
    ref_path(root, entry).unlink()

    def interrupted(*args):
        assert not blob_path(root, PROGRAM).exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "_put_back", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collect(root, grace_s=0)
    assert blob_path(root, PROGRAM).exists()
    assert blob_path(root, entry.id).exists()
    assert os.listdir(root / "v1/tmp") == []


def test_a_sweep_that_cannot_give_back_leaves_what_it_has_to_the_next(root, entry, monkeypatch):
    ref, text = ref_path(root, entry), ref_path(root, entry).read_bytes()
    ref.unlink()
    real = sweeping._put_back

    def published_meanwhile(*args):
        ref.write_bytes(text)
        return real(*args)

    monkeypatch.setattr(sweeping, "_put_back", published_meanwhile)
    monkeypatch.setattr(taken, "_name_again", _full)
    with pytest.raises(StorageError, match="No space"):
        collect(root, grace_s=0)
    monkeypatch.undo()
    (left,) = (root / "v1/tmp").iterdir()
    left.rename(left.with_name(DEAD))  # as if this process had ended
    assert_intact(root, entry)


def test_nothing_is_in_hands_where_nobody_works(root, entry):
    with opened(root, create=False) as store:
        assert not is_in_hands(store, place(PROGRAM))
        assert read_taken(store, place(PROGRAM), 100) is None
        assert not give_back(store, place(PROGRAM))
    assert quiet(root).find(BASE) == (entry,)


def _full(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device")
