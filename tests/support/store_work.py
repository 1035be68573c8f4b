"""What is done to a store, piece by piece, for the tests that interrupt it: before, work, after.

A new row is a `Row` at the end: the kill matrix and the model of power loss take it from there.
"""

from __future__ import annotations

import os
from pathlib import Path

from support.kill_matrix import Row
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
from vcc.cache.care.check import check
from vcc.cache.care.prune import items_of
from vcc.cache.care.remove import remove
from vcc.cache.care.repair import repair
from vcc.cache.care.sweep import collect
from vcc.cache.pack.read import PackReader
from vcc.cache.pack.unpack import unpack
from vcc.cache.pack.write import content_of, write_pack
from vcc.cache.publish import own_folder
from vcc.cache.remote.offers import offers
from vcc.cache.remote.open import open_remote
from vcc.cache.remote.patience import BY_HAND, Patience
from vcc.cache.remote.pull import pull
from vcc.cache.remote.push import Push, push_stored
from vcc.cache.root import opened

NEW = {"program": b"new program", "constant/inv_freq": bytes(100), "piece/0.so": b"\x7fELFnew"}


def earlier(folder: Path):
    return quiet(folder / "store").publish(manifest_of("none", created=1), BLOBS)


def publish_new(folder: Path):
    return quiet(folder / "store").publish(manifest_of(), NEW)


def all_or_nothing(folder: Path) -> None:
    store = quiet(folder / "store")
    (old,) = store.find(BASE, {"mode": "none"})
    assert_intact(store.root, old)
    for entry in store.find(BASE, {"mode": "full"}):
        assert_intact(store.root, entry, NEW)
    assert_intact(store.root, publish_new(folder), NEW)


def after_first(folder: Path) -> None:
    store = quiet(folder / "store")
    for entry in store.find(BASE):
        assert_intact(store.root, entry, NEW)
    assert_intact(store.root, publish_new(folder), NEW)


# Remotes: a directory, so that the system calls of both sides are points.


def earlier_here_and_newer_there(folder: Path) -> None:
    earlier(folder)
    push(quiet(folder / "other").publish(manifest_of(), NEW), folder / "other", folder)


def push(entry, root: Path, folder: Path) -> None:
    remote = open_remote((folder / "remote").as_uri())
    push_stored(Push(remote, Patience(BY_HAND)), quiet(root), entry)


def pull_mode(folder: Path, root: Path, mode: str) -> None:
    """Pull by hand what the remote has of a mode."""
    remote = open_remote((folder / "remote").as_uri())
    patience = Patience(BY_HAND)
    for entry in offers(remote, patience, BASE.digest.hex).entries:
        if entry.fields["mode"] == mode:
            pull(root, remote, entry, quiet(root).gate, patience, by_hand=True)


def pull_new(folder: Path) -> None:
    pull_mode(folder, folder / "store", "full")


def pulled_or_not(folder: Path) -> None:
    store = quiet(folder / "store")
    (old,) = store.find(BASE, {"mode": "none"})
    assert_intact(store.root, old)
    for entry in store.find(BASE, {"mode": "full"}):
        assert_intact(store.root, entry, NEW)
    pull_new(folder)
    assert_intact(store.root, *store.find(BASE, {"mode": "full"}), NEW)


def two_here_one_there(folder: Path) -> None:
    push(earlier(folder), folder / "store", folder)
    publish_new(folder)


def push_new(folder: Path) -> None:
    (entry,) = quiet(folder / "store").find(BASE, {"mode": "full"})
    push(entry, folder / "store", folder)


def pushed_or_not(folder: Path) -> None:
    """What the remote names, it has: an empty store can pull all of it, before and after."""
    for number in range(2):
        fresh = folder / f"fresh{number}"
        pull_mode(folder, fresh, "none")
        pull_mode(folder, fresh, "full")
        assert_intact(fresh, *quiet(fresh).find(BASE, {"mode": "none"}))
        new = quiet(fresh).find(BASE, {"mode": "full"})
        assert len(new) == 1 or number == 0
        for entry in new:
            assert_intact(fresh, entry, NEW)
        push_new(folder)


# Packs


def earlier_here_and_newer_in_a_pack(folder: Path) -> None:
    earlier(folder)
    other = quiet(folder / "other")
    content = content_of(other, [other.publish(manifest_of(), NEW)])
    with open(folder / "pack", "wb") as file:
        write_pack(content, file.write)


def import_pack(folder: Path) -> None:
    with open(folder / "pack", "rb") as file:
        unpack(folder / "store", PackReader.open(file), quiet(folder / "store").gate)


def imported_or_not(folder: Path) -> None:
    store = quiet(folder / "store")
    assert_intact(store.root, *store.find(BASE, {"mode": "none"}))
    for entry in store.find(BASE, {"mode": "full"}):
        assert_intact(store.root, entry, NEW)
    import_pack(folder)
    assert_intact(store.root, *store.find(BASE, {"mode": "full"}), NEW)


# Care


def litter(folder: Path) -> None:
    """Beside a good entry: blobs of a removed one, a dead process's folder, a note, a pin."""
    earlier(folder)
    gone = publish_new(folder)
    ref_path(folder / "store", gone).unlink()
    pid = child(lambda: half_published(folder / "store"))
    assert exit_of(pid) == 9


def half_published(root: Path) -> None:
    with opened(root, create=True) as v1, own_folder(v1) as own:
        own.write("half", bytes(5000))
        os._exit(9)


def collect_all(folder: Path):
    return collect(folder / "store", grace_s=0)


def collected(folder: Path) -> None:
    store = quiet(folder / "store")
    (old,) = store.find(BASE)
    assert_intact(store.root, old)
    assert not collect_all(folder).failed
    assert collect_all(folder).counts() == {}
    assert_intact(store.root, old)


def one_good_one_bad(folder: Path) -> None:
    earlier(folder)
    bad = publish_new(folder)
    path = blob_path(
        folder / "store", quiet(folder / "store").load(bad).manifest.blobs["piece/0.so"].sha256
    )
    overwrite(path, flipped(path.read_bytes(), 3, 1))


def repair_all(folder: Path):
    return repair(folder / "store")


def repaired(folder: Path) -> None:
    store = quiet(folder / "store")
    repair_all(folder)
    assert check(store.root).findings == []
    assert [entry.fields["mode"] for entry in store.find(BASE)] == ["none"]
    all_or_nothing(folder)


def remove_old(folder: Path):
    items = [one for one in items_of(folder / "store").items if one.created == 1]
    return remove(folder / "store", items, force=True)  # this process has loaded it in `check`


def removed(folder: Path) -> None:
    store = quiet(folder / "store")
    (new,) = store.find(BASE, {"mode": "full"})
    assert_intact(store.root, new, NEW)
    for entry in store.find(BASE, {"mode": "none"}):
        assert_intact(store.root, entry)
    remove_old(folder)
    assert store.find(BASE) == (new,)
    assert_intact(store.root, new, NEW)


def two_entries(folder: Path) -> None:
    earlier(folder)
    publish_new(folder)


ROWS = [
    Row("publish", earlier, publish_new, all_or_nothing),
    Row("first publish", lambda folder: None, publish_new, after_first),
    Row("pull", earlier_here_and_newer_there, pull_new, pulled_or_not),
    Row("push", two_here_one_there, push_new, pushed_or_not),
    Row("import", earlier_here_and_newer_in_a_pack, import_pack, imported_or_not),
    Row("gc", litter, collect_all, collected),
    Row("repair", one_good_one_bad, repair_all, repaired),
    Row("remove", two_entries, remove_old, removed),
]
