"""Row 13: at whatever instant the power goes, a ref that is there can be read, and all of it."""

from __future__ import annotations

import shutil

import pytest
from support.kill_matrix import Row
from support.power_loss import record, restore
from support.store_work import ROWS
from support.stores import BASE, quiet

from vcc.cache.process import Process


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_after_a_loss_of_power_the_store_is_whole(fast_tmp, row):
    states = states_of(row, fast_tmp)
    print(f"{row.name}: {len(states)} states")
    assert len(states) > 10
    for number, state in enumerate(states):
        place = fast_tmp / "after"
        restore(state, place)
        restarted(place)
        try:
            row.check(place)
        except BaseException as error:
            raise AssertionError(f"{row.name}, state {number}: {error!r}") from error
        shutil.rmtree(place)


def restarted(place):
    """The host was started again: what this process made looks as made before that."""
    boot = Process.own().boot
    for folder in place.rglob("v1/tmp/*"):
        folder.rename(folder.with_name(folder.name.replace(f".{boot}.", f".{'f' * len(boot)}.")))


def states_of(row: Row, folder):
    work = folder / "work"
    work.mkdir()
    row.prepare(work)
    return record(work, lambda: row.act(work))


def test_the_model_finds_a_publisher_that_does_not_sync(fast_tmp, monkeypatch):
    """Without `fsync` there must be states with a ref whose blobs are not there."""
    monkeypatch.setattr("vcc.cache.folder.sync_folder", lambda fd: None)
    row = next(one for one in ROWS if one.name == "publish")
    lost = 0
    for state in states_of(row, fast_tmp):
        place = fast_tmp / "after"
        restore(state, place)
        try:
            store = quiet(place / "store")
            for entry in store.find(BASE):
                store.load(entry).read_all()
        except Exception:
            lost += 1
        shutil.rmtree(place)
    assert lost > 0
