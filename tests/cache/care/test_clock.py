"""The clock of a store is that of its file system."""

from __future__ import annotations

import time

from support.stores import ref_path

from vcc.cache.care.clock import age, now_of
from vcc.cache.care.sweep import collect
from vcc.cache.root import opened


def test_a_process_under_another_clock_judges_by_that_of_the_files(root, two, monkeypatch):
    ref_path(root, two[0]).unlink()
    monkeypatch.setattr(time, "time", lambda: 1e10)
    assert collect(root).gone == []


def test_a_store_that_cannot_be_written_is_judged_by_the_process_clock(root, two, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 12345.0)
    with opened(root, create=False) as store:
        assert now_of(store) > 1e9
        (root / "v1/tmp").rmdir()
        (root / "v1/tmp").write_text("a file where a folder belongs")
        assert now_of(store) == 12345.0


def test_what_is_from_the_future_is_no_time_ago():
    assert age(10.0, 4.0) == 6.0
    assert age(10.0, 1e12) == 0.0
