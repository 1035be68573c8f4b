"""SIGKILL at each system call (rows 1 to 5): nothing earlier is lost, the next command is clean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.kill_matrix import CannotTrace, Row, run
from support.stores import (
    BASE,
    BLOBS,
    assert_intact,
    child,
    exit_of,
    manifest_of,
    quiet,
    ref_path,
)

from vcc.cache.care.sweep import collect
from vcc.cache.publish import own_folder
from vcc.cache.remote.offers import offers
from vcc.cache.remote.open import open_remote
from vcc.cache.remote.patience import BY_HAND, Patience
from vcc.cache.remote.pull import pull
from vcc.cache.remote.push import Push, manifest_text
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
    store, remote = quiet(root), open_remote((folder / "remote").as_uri())
    loaded = store.load(entry)
    Push(remote, Patience(BY_HAND)).run(entry, loaded, manifest_text(loaded), {})


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
    assert list((store.root / "v1/tmp").iterdir()) == []
    assert_intact(store.root, old)


ROWS = [
    Row("publish", earlier, publish_new, all_or_nothing),
    Row("first publish", lambda folder: None, publish_new, after_first),
    Row("pull", earlier_here_and_newer_there, pull_new, pulled_or_not),
    Row("push", two_here_one_there, push_new, pushed_or_not),
    Row("gc", litter, collect_all, collected),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_killed_at_every_system_call_nothing_is_lost_or_torn(fast_tmp, row):
    try:
        figures = run(row, fast_tmp)
    except CannotTrace as error:
        pytest.skip(str(error))
    print(f"{row.name}: {figures}")
    assert figures.killed == figures.points.total() > 0
