"""What takes longest in a boot begins first."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.player_boot import boot, loaded

from vcc.engine.runtime.player import load
from vcc.engine.runtime.player.handle import PlayerHandle

pytestmark = pytest.mark.usefixtures("double")


def test_the_upload_of_weights_begins_before_modules_are_loaded(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, in_time = threading.Event(), []
    fill, add = load.fill_weights, PlayerHandle.add_cubins

    def filling(*words: object) -> object:
        began.set()
        return fill(*words)  # type: ignore[arg-type]

    def adding(self: PlayerHandle, cubins: Mapping[str, bytes]) -> None:
        in_time.append(began.wait(10))
        add(self, cubins)

    monkeypatch.setattr(load, "fill_weights", filling)
    monkeypatch.setattr(PlayerHandle, "add_cubins", adding)
    runner = loaded(boot(weights))
    assert in_time == [True]
    runner.close()
