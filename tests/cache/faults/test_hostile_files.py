"""Hostile and damaged files (rows 52, 62, 63, 66): bounded, reported once, never run."""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
import zipfile
from pathlib import Path

import pytest
from support.stores import (
    BASE,
    BLOBS,
    assert_intact,
    blob_path,
    child,
    exit_of,
    flipped,
    manifest_of,
    overwrite,
    quiet,
    ref_path,
)

from vcc.cache.blob import Damaged
from vcc.cache.errors import MissingArtifact
from vcc.cache.store import Store


def spoil(path: Path) -> None:
    overwrite(path, flipped(path.read_bytes(), 1, 1))


def test_a_manifest_of_100_megabytes_is_refused_at_once_and_without_memory(root):
    """Row 52: its size is seen before a byte of it is read."""
    entry = quiet(root).publish(manifest_of(), BLOBS)
    path = blob_path(root, entry.artifact)
    path.unlink()
    with open(path, "wb") as file:
        file.truncate(100 << 20)
    path.chmod(0o600)

    def work():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        store, start = quiet(root), time.perf_counter()
        with pytest.raises(Damaged, match="expected"):
            store.load(entry)
        assert time.perf_counter() - start < 0.05
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10 << 10  # KiB

    assert exit_of(child(work)) == 0


# Quarantine (rows 62, 63)


def full_by_a_file(root: Path) -> None:
    (root / "v1/quarantine").write_text("in the way")


def unwritable(root: Path) -> None:
    (root / "v1/quarantine").mkdir(mode=0o500)


@pytest.mark.parametrize("broken", [full_by_a_file, unwritable], ids=lambda f: f.__name__)
def test_without_a_quarantine_a_bad_entry_goes_all_the_same(open_tmp, broken):
    """Row 62."""

    def work():
        root = open_tmp / "store"
        entry = quiet(root).publish(manifest_of(), BLOBS)
        broken(root)
        spoil(blob_path(root, entry.artifact))
        damages = []
        store = Store(root, damages.append)
        with pytest.raises(Damaged) as caught:
            store.load(entry)
        store.quarantine(entry, caught.value)
        assert [one.removed for one in damages] == [True]
        assert quiet(root).find(BASE) == ()
        assert_intact(root, quiet(root).publish(manifest_of(), BLOBS))

    assert exit_of(child(work, uid=65534)) == 0


def start(root: Path) -> tuple[list, bool]:
    """One start of a program: look up, load, and build where that fails; reports and hit."""
    damages: list = []
    store = Store(root, damages.append)
    for entry in store.find(BASE):
        for _ in range(3):
            try:
                store.load(entry).read_all()
                return damages, True
            except Damaged as error:
                store.quarantine(entry, error)
            except MissingArtifact:
                break
    return damages, False


def test_a_bad_entry_is_reported_once_a_start_and_never_loops(open_tmp):
    """Row 63 where nothing can be moved: a hundred starts, a hundred reports, no wrong bytes."""

    def work():
        root = open_tmp / "store"
        entry = quiet(root).publish(manifest_of(), BLOBS)
        spoil(blob_path(root, entry.artifact))
        folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o500)
        try:
            for _ in range(100):
                damages, hit = start(root)
                assert not hit
                assert [(one.artifact, one.removed) for one in damages] == [(entry.artifact, False)]
        finally:
            for folder in folders:
                folder.chmod(0o700)
        damages, hit = start(root)
        assert [one.removed for one in damages] == [True]
        assert not hit
        for _ in range(100):
            assert start(root) == ([], False)
        quiet(root).publish(manifest_of(), BLOBS)
        for _ in range(100):
            assert start(root) == ([], True)

    assert exit_of(child(work, uid=65534)) == 0


# Data that is code somewhere else (row 66)


class Bomb:
    def __reduce__(self):
        return os.system, ("touch /tmp/vcc-test-bomb",)


def polyglots(folder: Path) -> dict[str, bytes]:
    archive = folder / "zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Bomb()))
        file.writestr("../../escape", b"x")
    return {"program": pickle.dumps(Bomb()), "piece/0.so": archive.read_bytes()}


FORBIDDEN = ("pickle.", "exec", "os.system", "subprocess.", "os.exec", "os.posix_spawn", "marshal.")


def test_a_pickle_or_an_archive_in_a_blob_is_bytes_and_nothing_else(root, tmp_path):
    content = polyglots(tmp_path)
    entry = quiet(root).publish(manifest_of(), content)
    spoil(ref_path(root, quiet(root).publish(manifest_of("other"), content)))

    def work():
        events: list[str] = []
        quiet(root).load(entry).read_all()  # what is imported late is imported now
        sys.addaudithook(lambda event, rest: events.append(event))
        store = quiet(root)
        assert store.find(BASE) == (entry,)
        assert store.load(entry).read_all() == content
        assert not [event for event in events if event.startswith(FORBIDDEN)], events
        assert not {"torch", "zipfile"} & set(sys.modules) - before

    before = set(sys.modules)
    assert exit_of(child(work)) == 0
    assert not Path("/tmp/vcc-test-bomb").exists()
