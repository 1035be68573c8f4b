"""A store that cannot be written: runs are warm, builds are used, and what is lost is said."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.mounts import can_mount, in_own_mounts, mount

pytestmark = pytest.mark.root

PROMPT = ("--prompt", "It is a truth", "--max-new-tokens", "4", "--json")


def test_what_is_there_runs_and_what_is_not_is_built_and_used(
    spawn: Callable[..., Any], demo_shelf: Path, tmp_path: Path
) -> None:
    """B20; `vcc compile`, whose work is lost, ends with the code of the store."""
    if why := can_mount():
        pytest.skip(why)

    def work() -> None:
        place = tmp_path / "mount"
        mount(place, "size=64m,mode=700")
        store = shutil.copytree(demo_shelf, place / "store")
        mount(place, "remount,ro")
        warm = spawn("run", "demo", "--require-warm", *PROMPT, store=store)
        assert warm.code == 0, warm.err
        assert warm.json["counters"]["hits"] == 1
        cold = spawn("run", "demo", "--compile", "none", *PROMPT, store=store)
        assert cold.code == 0, cold.err
        assert cold.json["artifact"] is None
        assert any("not stored" in note and "Read-only" in note for note in cold.json["notes"])
        token_ids = [one.json["prompts"][0]["token_ids"] for one in (warm, cold)]
        assert token_ids[0][0] == token_ids[1][0]
        lost = spawn("compile", "demo", "--compile", "none", "--json", store=store)
        assert (lost.code, lost.json["error"]["exit"]) == (5, 5)
        assert "Read-only file system" in lost.json["error"]["why"]
        assert "--cache-dir" in lost.json["error"]["hint"]
        missing = spawn("run", "demo", "--dtype", "fp32", "--require-warm", *PROMPT, store=store)
        assert (missing.code, missing.json["error"]["id"]) == (1, "MISSING_ARTIFACT")

    assert in_own_mounts(work) == 0
