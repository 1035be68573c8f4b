"""SIGKILL at each system call (rows 1 to 5): nothing earlier is lost, the next command is clean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.kill_matrix import CannotTrace, Row, run
from support.store_work import ROWS

from vcc.cache.care.check import check
from vcc.cache.care.sweep import collect


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_killed_at_every_system_call_nothing_is_lost_or_torn(fast_tmp, row):
    try:
        figures = run(replace(row, check=lambda folder: checked(row, folder)), fast_tmp)
    except CannotTrace as error:
        pytest.skip(str(error))
    print(f"{row.name}: {figures}")
    assert figures.killed == figures.points.total() > 0


def checked(row: Row, folder: Path) -> None:
    """As the row says; then nothing is wrong in the store, and `gc` reclaims what was left."""
    row.check(folder)
    store = folder / "store"
    assert check(store).findings == []
    collect(store, grace_s=0)
    assert list((store / "v1/tmp").iterdir()) == []
    assert check(store).findings == []
