"""How many workers a build starts when nobody says."""

from __future__ import annotations

import os

import pytest

from vcc.engine.compile import pool


@pytest.mark.parametrize(("size", "jobs"), [(pool.LIGHT, [2, 2, 3, 2]), (pool.LIGHT + 1, [2] * 4)])
def test_one_worker_more_than_processors_for_a_light_piece_that_is_left_over(
    monkeypatch: pytest.MonkeyPatch, size: int, jobs: list[int]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(pool, "golden_bytes", lambda piece: size)
    assert [pool.default_jobs([object()] * count) for count in (1, 2, 3, 4)] == jobs  # type: ignore[list-item]
