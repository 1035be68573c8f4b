"""Leftovers of killed processes in the temporary folder."""

from __future__ import annotations

import os
import tempfile

import pytest

from vcc.cache.care.leftovers import leftovers, sweep_leftovers
from vcc.cache.care.sweep import Swept
from vcc.cache.process import Process

OWN = Process.own()
DEAD = f"{OWN.host}.{OWN.boot}.4194305-1-0.00"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folders_of_dead_processes_go_and_nothing_else(place):
    for prefix in ("vcc-build-", "vcc-load-"):
        (place / f"{prefix}{DEAD}" / "inner").mkdir(parents=True)
        (place / f"{prefix}{DEAD}" / "inner" / "x").write_bytes(b"12345")
    kept = [
        f"vcc-build-{OWN}.00",
        "vcc-build-elsewhere.0f.1-2-3.00",
        "vcc-build-x",
        f"other-{DEAD}",
    ]
    for name in kept:
        (place / name).mkdir()
    (place / "target").mkdir()
    (place / f"vcc-load-{DEAD}1").symlink_to(place / "target")
    (place / f"vcc-load-{DEAD}2").touch()
    told = Swept()
    sweep_leftovers(told, dry_run=True)
    assert (len(told.gone), told.size) == (2, 10)
    assert len(list(leftovers())) == 2
    done = Swept()
    sweep_leftovers(done)
    assert [one.place for one in done.gone] == [one.place for one in told.gone]
    left = sorted(os.listdir(place))
    assert left == sorted([*kept, "target", f"vcc-load-{DEAD}1", f"vcc-load-{DEAD}2"])


def test_a_temporary_folder_that_is_not_there_has_none(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place / "nowhere"))
    assert list(leftovers()) == []
