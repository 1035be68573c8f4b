"""The garbage collector is paused inside the block, and afterwards as it was."""

from __future__ import annotations

import gc

import pytest

from vcc.engine.runtime.player.collector import collector_paused


@pytest.fixture
def enabled() -> None:
    assert gc.isenabled()


def test_it_is_paused_inside_and_on_again_after_an_error(enabled: None) -> None:
    seen = []

    def fails() -> None:
        with collector_paused():
            with collector_paused():
                seen.append(gc.isenabled())
            seen.append(gc.isenabled())  # the inner block does not end the outer one
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert seen == [False, False]
    assert gc.isenabled()


def test_one_that_is_off_stays_off(enabled: None) -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
